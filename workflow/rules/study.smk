rule study:
    input:
        code=lambda wc: dependencies.job("harness.study", *PLAN.sources(wc.run)),
        files=lambda wc: PLAN.read_by(wc.run),
    output:
        measured="results/runs/{run}/study/seed{seed}/study.json",
        record="results/runs/{run}/study/seed{seed}/run.json",
    log:
        "results/log/study/{run}.study.seed{seed}.log",
    benchmark:
        "results/benchmark/study/{run}.seed{seed}.tsv"
    wildcard_constraints:
        run="|".join(PLAN.made_by("study")) or NOTHING,
    retries: 1  # a job that was killed goes on from its last part
    threads: 1
    resources:
        **PLAN.gpu(),
        mem_mb=2000,
        profile=PLAN.config.profile,  # no param: its name alone changes no result
        runtime=60,
    params:
        device=lambda wc, resources: PLAN.device(resources),
    message:
        "study {wildcards.run}, seed {wildcards.seed} ({log})"
    shell:
        "python -m harness.study {wildcards.run} --seed {wildcards.seed}"
        " --profile {resources.profile} --device {params.device} > {log} 2>&1"


rule apply:
    # a method changes the model that its base's training left
    input:
        code=lambda wc: dependencies.job("harness.apply", f"harness.tasks.{wc.task}", *PLAN.sources(wc.run)),
        data=lambda wc: PLAN.data(wc.task),
        base=lambda wc: PLAN.base(wc.run, wc.task, wc.seed),
    output:
        weights="results/runs/{run}/{task}/seed{seed}/model.safetensors",
        record="results/runs/{run}/{task}/seed{seed}/run.json",
        measured="results/runs/{run}/{task}/seed{seed}/method.json",
    log:
        "results/log/apply/{run}.{task}.seed{seed}.log",
    benchmark:
        "results/benchmark/apply/{run}.{task}.seed{seed}.tsv"
    wildcard_constraints:
        run="|".join(PLAN.made_by("apply")) or NOTHING,
    threads: 1
    resources:
        **PLAN.gpu(),
        mem_mb=2000,
        profile=PLAN.config.profile,  # no param: its name alone changes no result
        runtime=60,
    params:
        device=lambda wc, resources: PLAN.device(resources),
    message:
        "apply {wildcards.run} on {wildcards.task}, seed {wildcards.seed} ({log})"
    shell:
        "python -m harness.apply {wildcards.run} --task {wildcards.task} --seed {wildcards.seed}"
        " --profile {resources.profile} --device {params.device} > {log} 2>&1"
