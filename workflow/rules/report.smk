rule costs:
    input:
        code=lambda wc: dependencies.job("harness.costs", *PLAN.sources(*PLAN.models())),
        records=PLAN.first_records(),
    output:
        "results/costs.json",
    log:
        "results/log/costs.log",
    benchmark:
        "results/benchmark/costs.tsv"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        plan=PLAN.arguments(),
    message:
        "count what the models cost ({log})"
    shell:
        "python -m harness.costs {params.plan} > {log} 2>&1"


rule aggregate:
    input:
        code=dependencies.whole("harness.aggregate"),
        costs=rules.costs.output,
        records=PLAN.records(),
    output:
        tables=expand("results/measurements.{kind}", kind=["csv", "parquet", "json"]),
        runs="results/runs.json",
        scores="results/items.parquet",
        sums="results/SHA256SUMS",
    log:
        "results/log/aggregate.log",
    benchmark:
        "results/benchmark/aggregate.tsv"
    params:
        plan=PLAN.arguments(),
    message:
        "aggregate the measurements ({log})"
    shell:
        "python -m harness.aggregate {params.plan} > {log} 2>&1"


rule judge:
    input:
        code=dependencies.whole("harness.judge"),
        tables=rules.aggregate.output.tables,
        runs=rules.aggregate.output.runs,
        scores=rules.aggregate.output.scores,
        noise=list(PLAN.repeated().values()),
    output:
        "results/verdicts.json",
    log:
        "results/log/judge.log",
    benchmark:
        "results/benchmark/judge.tsv"
    params:
        plan=PLAN.arguments(),
        claims=PLAN.claims(),
    message:
        "judge the claims ({log})"
    shell:
        "python -m harness.judge {params.plan} > {log} 2>&1"


rule history:
    input:
        code=dependencies.whole("harness.history"),
        tables=rules.aggregate.output.tables,
        runs=rules.aggregate.output.runs,
        verdicts=rules.judge.output,
    output:
        "results/history/index.json",  # the records beside it stay from build to build
    log:
        "results/log/history.log",
    params:
        plan=PLAN.arguments(),
    message:
        "keep a record of this build ({log})"
    shell:
        "python -m harness.history {params.plan} > {log} 2>&1"


rule site:
    input:
        code=dependencies.whole("harness.site"),
        templates=PLAN.templates(),
        literature="papers/literature.csv",
        manifest=PLAN.manifest(),
        tables=rules.aggregate.output.tables,
        runs=rules.aggregate.output.runs,
        verdicts=rules.judge.output,
        proofs=rules.proofs.output,
        history=rules.history.output,
        scores=rules.aggregate.output.scores,
    output:
        page="results/site/index.html",
        archive=report("results/site/downloads/site.zip", category="Site", caption="../report/site.rst"),
    log:
        "results/log/site.log",
    benchmark:
        "results/benchmark/site.tsv"
    params:
        plan=PLAN.arguments(),
        claims=PLAN.claims(),
    message:
        "render the site ({log})"
    shell:
        "python -m harness.site {params.plan} > {log} 2>&1"


rule strict:
    input:
        runs=rules.aggregate.output.runs,
        site=rules.site.output.page,
    output:
        touch("results/strict"),
    log:
        "results/log/strict.log",
    params:
        plan=PLAN.arguments(),
    message:
        "strict: every run and every suite must have a result, every proof must hold"
    shell:
        "python -m harness.failures {params.plan} 2>&1 | tee {log}"
