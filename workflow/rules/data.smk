rule corpus:
    input:
        dependencies.whole("harness.data"),
        PLAN.local(PLAN.profile.data.hub and PLAN.profile.data.hub.dataset),
    output:
        "results/data/{corpus}/manifest.json",
        "results/data/{corpus}/tokenizer.json",
        "results/data/{corpus}/token_bytes.npy",
        "results/data/{corpus}/train.npy",
        "results/data/{corpus}/valid.npy",
        "results/data/{corpus}/test.npy",
    log:
        "results/log/corpus/{corpus}.log",
    benchmark:
        "results/benchmark/corpus/{corpus}.tsv"
    priority: 1  # the longest jobs wait for it
    threads: 1
    resources:
        mem_mb=2000,
        profile=PLAN.config.profile,  # no param: its name alone changes no result
        runtime=60,
    params:
        hub=PLAN.hub() if PLAN.profile.data.hub else "",
    message:
        "corpus of {resources.profile} ({log})"
    shell:
        "python -m harness.data --profile {resources.profile} {params.hub} > {log} 2>&1"
