rule prove:
    input:
        code=lambda wc: dependencies.job("harness.prove", f"impls.{wc.impl}"),
        held_against=lambda wc: PLAN.held_against(wc.impl),
    output:
        "results/proofs/{impl}.json",
    log:
        "results/log/prove/{impl}.log",
    benchmark:
        "results/benchmark/prove/{impl}.tsv"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        settings=lambda wc: PLAN.settings_of(wc.impl),
    message:
        "prove {wildcards.impl} ({log})"
    shell:
        "python -m harness.prove {wildcards.impl} --record > {log} 2>&1"


rule proofs:
    input:
        code=dependencies.job("harness.proofs.record"),
        proofs=PLAN.proofs(),
    output:
        "results/proofs.json",
    log:
        "results/log/proofs.log",
    params:
        impls=PLAN.impls(),
    message:
        "put the proofs together ({log})"
    shell:
        "python -m harness.proofs.record {params.impls} > {log} 2>&1"
