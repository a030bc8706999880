rule tune:
    input:
        code=lambda wc: dependencies.job("harness.tune", f"harness.tasks.{wc.task}", *PLAN.sources(wc.run)),
        data=lambda wc: PLAN.data(wc.task),
    output:
        "results/runs/{run}/{task}/tune.json",
    log:
        "results/log/tune/{run}.{task}.log",
    benchmark:
        "results/benchmark/tune/{run}.{task}.tsv"
    priority: 1  # its trainings wait for it
    retries: 1
    threads: 1
    resources:
        **PLAN.gpu(),
        mem_mb=2000,
        profile=PLAN.config.profile,  # no param: its name alone changes no result
        runtime=240,
    params:
        device=lambda wc, resources: PLAN.device(resources),
        seed=PLAN.spare_seeds(1),
    message:
        "choose the learning rate of {wildcards.run} on {wildcards.task} ({log})"
    shell:
        "python -m harness.tune {wildcards.run} --task {wildcards.task} --seed {params.seed}"
        " --profile {resources.profile} --device {params.device} > {log} 2>&1"


rule train:
    input:
        code=lambda wc: dependencies.job("harness.train", f"harness.tasks.{wc.task}", *PLAN.sources(wc.run)),
        data=lambda wc: PLAN.data(wc.task),
        grid=lambda wc: PLAN.grid(wc.run, wc.task),
    output:
        weights="results/runs/{run}/{task}/seed{seed}/model.safetensors",
        record="results/runs/{run}/{task}/seed{seed}/run.json",
        curve="results/runs/{run}/{task}/seed{seed}/curve.jsonl",
    log:
        "results/log/train/{run}.{task}.seed{seed}.log",
    benchmark:
        "results/benchmark/train/{run}.{task}.seed{seed}.tsv"
    wildcard_constraints:
        run="|".join(PLAN.made_by("train")) or NOTHING,
    retries: 1  # a job that was killed goes on from its last state
    threads: lambda wc: PLAN.processes(wc.task)
    resources:
        **PLAN.gpu(lambda wc: PLAN.processes(wc.task)),
        mem_mb=lambda wc: 2000 * PLAN.processes(wc.task),
        profile=PLAN.config.profile,  # no param: its name alone changes no result
        runtime=240,
    params:
        device=lambda wc, resources: PLAN.device(resources),
    message:
        "train {wildcards.run} on {wildcards.task}, seed {wildcards.seed} ({log})"
    shell:
        "python -m harness.train {wildcards.run} --task {wildcards.task} --seed {wildcards.seed}"
        " --profile {resources.profile} --device {params.device} > {log} 2>&1"


rule pretrained:
    input:
        code=dependencies.job("harness.pretrained"),
        model=lambda wc: PLAN.local(PLAN.runs[wc.run].hf),
    output:
        "results/runs/{run}/{task}/seed{seed}/run.json",
    log:
        "results/log/pretrained/{run}.{task}.seed{seed}.log",
    benchmark:
        "results/benchmark/pretrained/{run}.{task}.seed{seed}.tsv"
    wildcard_constraints:
        run="|".join(PLAN.made_by("pretrained")) or NOTHING,
    threads: 1
    resources:
        mem_mb=4000,
        runtime=120,
    params:
        hf=lambda wc: PLAN.runs[wc.run].hf,
        impl=lambda wc: PLAN.runs[wc.run].impl,
        hub=PLAN.hub(),
    message:
        "take {params.hf} from the Hub ({log})"
    shell:
        "python -m harness.pretrained {wildcards.run} --impl {params.impl} --task {wildcards.task}"
        " --seed {wildcards.seed} --hf {params.hf:q} {params.hub} > {log} 2>&1"
