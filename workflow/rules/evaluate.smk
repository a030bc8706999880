rule evaluate:
    # every suite in one job: to start Python and torch takes as long as most suites
    input:
        code=lambda wc: dependencies.job("harness.evaluate", *PLAN.sources(wc.run), *PLAN.modules()),
        data=[data for task in PLAN.trainings for data in PLAN.data(task)] + PLAN.files(),
        weights=lambda wc: [
            weights for task in PLAN.trained_on(wc.run) for weights in PLAN.weights(wc.run, task, wc.seed)
        ],
        records=lambda wc: [f"results/runs/{wc.run}/{task}/seed{wc.seed}/run.json" for task in PLAN.trained_on(wc.run)],
    output:
        [f"results/runs/{{run}}/{task}/seed{{seed}}/{suite}.json" for suite, task in PLAN.tasks.items()],
    log:
        "results/log/evaluate/{run}.seed{seed}.log",
    benchmark:
        "results/benchmark/evaluate/{run}.seed{seed}.tsv"
    threads: 1
    resources:
        **PLAN.gpu(),
        mem_mb=2000,
        profile=PLAN.config.profile,  # no param: its name alone changes no result
        runtime=240,
    params:
        device=lambda wc, resources: PLAN.device(resources),
        suites=PLAN.config.suites,
        hub=PLAN.hub(),
        untrained=lambda wc: PLAN.untrained(wc.run),
        lacking=outlook.obstacles(PLAN),  # what is mended is measured
        settings=[PLAN.profile.suite(suite).model_dump(mode="json") for suite in PLAN.config.suites],
    message:
        "evaluate {wildcards.run}, seed {wildcards.seed} ({log})"
    shell:
        "python -m harness.evaluate {wildcards.run} --suite {params.suites} --seed {wildcards.seed}"
        " --profile {resources.profile} --device {params.device} {params.hub} {params.untrained}"
        " > {log} 2>&1"


rule noise:
    input:
        code=lambda wc: dependencies.job(
            "harness.noise",
            *PLAN.sources(PLAN.reference()),
            *PLAN.modules(wc.task),
        ),
        data=lambda wc: PLAN.data(wc.task),
        grid=lambda wc: PLAN.grid(PLAN.reference(), wc.task),
        first=lambda wc: PLAN.measured_first(wc.task),
    output:
        "results/noise/{task}.json",
    log:
        "results/log/noise/{task}.log",
    benchmark:
        "results/benchmark/noise/{task}.tsv"
    retries: 1
    threads: 1
    resources:
        **PLAN.gpu(),
        mem_mb=2000,
        profile=PLAN.config.profile,  # no param: its name alone changes no result
        runtime=360,
    params:
        device=lambda wc, resources: PLAN.device(resources),
        hub=PLAN.hub(),
        run=PLAN.reference(),
        seed=PLAN.config.seeds[0],
        orders=PLAN.orders(),
        suites=lambda wc: PLAN.suites_of(wc.task),
    message:
        "repeat {params.run} on {wildcards.task} with its data in another order ({log})"
    shell:
        "python -m harness.noise {params.run} --task {wildcards.task} --seed {params.seed} --orders {params.orders}"
        " --suites {params.suites} --profile {resources.profile} --device {params.device} {params.hub} > {log} 2>&1"
