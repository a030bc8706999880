rule evaluate:
    input:
        code=lambda wc: dependencies.job(
            "harness.evaluate", f"harness.suites.{wc.suite}", f"harness.tasks.{wc.task}", PLAN.impl(wc.run)
        ),
        data=lambda wc: PLAN.data(wc.task),
        weights=rules.train.output.weights,
        record=rules.train.output.record,
    output:
        "results/runs/{run}/{task}/seed{seed}/{suite}.json",
    log:
        "results/log/evaluate/{run}.{task}.seed{seed}.{suite}.log",
    benchmark:
        "results/benchmark/evaluate/{run}.{task}.seed{seed}.{suite}.tsv"
    threads: 1
    resources:
        **PLAN.gpu(),
        mem_mb=2000,
        profile=PLAN.config.profile,  # no param: its name alone changes no result
        runtime=120,
    params:
        device=PLAN.config.device,
        settings=lambda wc: PLAN.profile.suite(wc.suite).model_dump(mode="json"),
    message:
        "evaluate {wildcards.run} with {wildcards.suite}, seed {wildcards.seed} ({log})"
    shell:
        "python -m harness.evaluate {wildcards.run} --suite {wildcards.suite} --seed {wildcards.seed}"
        " --profile {resources.profile} --device {params.device} > {log} 2>&1"


rule noise:
    input:
        code=lambda wc: dependencies.job(
            "harness.noise",
            f"harness.tasks.{wc.task}",
            PLAN.impl(PLAN.reference()),
            *(f"harness.suites.{suite}" for suite in PLAN.suites_of(wc.task)),
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
        device=PLAN.config.device,
        run=PLAN.reference(),
        seed=PLAN.config.seeds[0],
        orders=PLAN.orders(),
        suites=lambda wc: PLAN.suites_of(wc.task),
    message:
        "repeat {params.run} on {wildcards.task} with its data in another order ({log})"
    shell:
        "python -m harness.noise {params.run} --task {wildcards.task} --seed {params.seed} --orders {params.orders}"
        " --suites {params.suites} --profile {resources.profile} --device {params.device} > {log} 2>&1"
