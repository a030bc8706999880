"""How long the site takes, how much memory, and how large it gets, with many papers and invented numbers.

    python -m benchmarks.site                                200 papers of 10 runs, 5 seeds
    python -m benchmarks.site --papers 20 --runs 5 --out /tmp/site

Prints seconds and peak memory of the build, megabytes of the folder and of its overview. The numbers are drawn, not
measured: only their amount is real.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from harness import aggregate, site
from harness.config import Config, load_profile
from harness.files import write_json
from harness.judge import judge
from harness.measured import read
from harness.metrics import load_suite
from harness.outcomes import Bench
from harness.plan import Plan
from harness.report.reading import load
from harness.runs import resolve
from harness.spec import Paper

IMPLS = ("softmax", "gla", "delta_net", "retnet", "sigmoid", "linear_attention", "softpick", "gated_delta_net")
COMMIT = "0" * 40


def paper(place: int, runs: int) -> Paper:
    """A paper whose runs are all its own but for softmax, each claimed to be no worse than it."""
    given: dict[str, Any] = {"softmax": {"impl": "softmax"}}
    for k in range(1, runs):
        rate = {"lm": {"lr": round(1e-3 * (1 + place * runs + k) / 10, 7)}}
        given[f"run_{k}"] = {"impl": IMPLS[k % len(IMPLS)], "recipe": rate}
    compare = {"kind": "compare", "baseline": "softmax", "metric": "loss/test/bits_per_byte", "expect": "not_higher"}
    claims = [
        {"id": f"claim-{k}", "quote": f"run {k} is no worse than softmax", "where": "abstract", "run": f"run_{k}"}
        | {**compare, "margin": 0.02, "margin_from": "ours"}
        for k in range(1, runs)
    ]
    text = {"title": f"Paper {place} of many", "summary": "It never was.", "scale_gap": "paper: large; here: invented"}
    about = {"arxiv": f"{2001 + place // 90000}.{place:05d}", "year": 2020, "authors": ["A. Author"]}
    return Paper.model_validate({**text, **about, "runs": given, "claims": claims})


def invent(plan: Plan, results: Path) -> None:
    """Everything the site reads, with numbers drawn from one generator."""
    rng = np.random.default_rng(0)
    rows, trainings = [], []
    for run in plan.runs.values():
        for task in plan.trainings:
            settings = run.tasks[task].model_dump(mode="json")
            for seed in plan.config.seeds:
                curve = [[step, round(2 + 5 / step**0.5, 4)] for step in range(1, settings["steps"], 5)]
                head = {"run": run.id, "impl": run.impl, "seed": seed}
                state = {"status": "ok", "reason": None, "seconds": 1.0, "commit": COMMIT, "missing": [], "gaps": {}}
                training = {**head, "task": task, "args": run.args, "recipe": run.recipe, "status": "ok"}
                training |= {"reason": None, "step": settings["steps"], "steps": settings["steps"], "mixed": None}
                training |= {"settings": settings, "parameters": 172_000, "flops_per_token": 4e5, "state_bytes": 8192}
                training |= {"within_budget": True, "tokens": 10**6, "final_loss": 2.1, "seconds": 9.0, "curve": curve}
                suites = plan.suites_of(task)
                trainings.append({**training, "commit": COMMIT, "suites": dict.fromkeys(suites, state)})
                for suite in suites:
                    module = load_suite(suite)
                    for name, length, metric in module.cells(plan.profile):
                        value = {"value": float(rng.uniform(0.2, 0.9)), "n": 512, "stderr": 0.01}
                        where = {"suite": suite, "task": name, "length": length, "metric": metric}
                        rows.append({**head, **where, **value, "unit": module.METRICS[metric].unit, "commit": COMMIT})
    aggregate.write(rows, trainings, results)
    found = read(results / "measurements.csv", results / "runs.json", results / "items.parquet")
    bench = Bench(plan.profile, plan.config.seeds, plan.config.suites, found)
    write_json(results / "verdicts.json", judge(plan.papers, plan.runs, bench))


def processor() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def build(plan: Plan, results: Path) -> tuple[int, float, float, float]:
    """(pages, seconds, CPU seconds, peak memory in MiB) of reading the results and making the site."""
    start, spent = time.perf_counter(), processor()
    pages = site.build(load(plan, results), results / "site")
    seconds, used = time.perf_counter() - start, processor() - spent
    return pages, seconds, used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.site", description="Time a build of the site.")
    parser.add_argument("--papers", type=int, default=200)
    parser.add_argument("--runs", type=int, default=10, help="of each paper (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--suites", nargs="+", default=["loss", "recall"])
    parser.add_argument("--out", type=Path, help="a folder to keep the results in; else a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attest-") as spare:
        results = given.out or Path(spare)
        profile = load_profile("laptop")
        papers = {f"paper-{k}": paper(k, given.runs) for k in range(given.papers)}
        config = Config(seeds=tuple(range(given.seeds)), suites=tuple(given.suites))
        plan = Plan(config, profile, papers, resolve(papers, profile))
        invent(plan, results)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:  # its memory is the build's alone
            pages, seconds, used, peak = fresh.submit(build, plan, results).result()
        files = [path.stat().st_size for path in (results / "site").rglob("*") if path.is_file()]
        overview = (results / "site" / "index.html").stat().st_size
        print(f"{len(papers)} papers, {len(plan.runs)} runs, {given.seeds} seeds: {pages} pages")
        print(f"{seconds:.1f} s, {used:.1f} s of CPU, {peak:.0f} MiB")
        print(f"{sum(files) / 1e6:.1f} MB in {len(files)} files, the overview {overview / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
