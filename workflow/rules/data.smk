rule corpus:
    input:
        dependencies.whole("harness.data"),
    output:
        MANIFEST,
        expand("results/data/{name}", name=["tokenizer.json", "token_bytes.npy", "train.npy", "valid.npy", "test.npy"]),
    log:
        "results/log/corpus.log",
    benchmark:
        "results/benchmark/corpus.tsv"
    priority: 1  # the longest jobs wait for it
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        profile=PLAN.config.profile,
        settings=PLAN.profile.data.model_dump(mode="json"),
    message:
        "corpus of {params.profile} ({log})"
    shell:
        "python -m harness.data --profile {params.profile} --out results/data > {log} 2>&1"
