"""Results that nobody measured, for tests of the site: plausible numbers, gaps of every kind, and hostile text."""

from __future__ import annotations

import atexit
import copy
import hashlib
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from harness import aggregate, history, items, records, site
from harness.config import Config, Profile, load_profile
from harness.files import write_json
from harness.judge import judge
from harness.measured import read
from harness.metrics import load_suite
from harness.outcomes import Bench
from harness.plan import Plan
from harness.proofs.record import Proof, Result
from harness.report.reading import load
from harness.runs import RunSettings, resolve
from harness.spec import Paper

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SKILL = {"softmax": 1.0, "softpick": 0.97, "sigmoid": 0.8, "delta_net": 0.7, "gated_delta_net": 0.72, "gla": 0.25}

TITLES = [  # of pitfalls.md (h): text that ends scripts, opens elements, or asks to be run
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    '"><b id=pwn>x</b>',
    "' onmouseover='alert(3)",
    "A & B < C",
    "<!-- comment",
    "{{7*7}} ${7*7}",
    "javascript:alert(4)",
    "naïve Δ-net 你好",
    "a" * 300,
]


def hostile_paper(title: str, place: int) -> Paper:
    """A paper whose every text is the title, with a claim of each kind."""
    text = {"quote": title, "where": title, "reported": title}
    margin = {"margin": 0.01, "margin_from": title}
    compare = {**text, "kind": "compare", "run": "gla", "baseline": "softmax", **margin}
    trend = {**text, "kind": "trend", "run": "gla", **margin, "over": "length", "expect": "falls"}
    value = {**text, "kind": "value", "run": "gla", "value": 2.0, "tolerance": 0.5, "tolerance_from": title}
    claims: list[dict[str, Any]] = [
        {"id": "lower", **compare, "metric": "loss/test/bits_per_byte", "expect": "lower"},
        {"id": "within", **compare, "metric": "recall/mqar-4/accuracy", "expect": "within", "paraphrase": True},
        {"id": "slope", **trend, "metric": "recall/needle-8/accuracy"},
        {"id": "number", **value, "metric": "loss/test/bits_per_byte"},
        {"id": "exact", **text, "kind": "property", "run": "gla", "check": "state_constant_in_length"},
        {"id": "later", **text, "kind": "untested", "reason": title},
    ]
    return Paper.model_validate(
        {
            "title": title,
            "arxiv": f"2410.{10000 + place:05d}",
            "year": 2017 + place,
            "authors": [title, "An Author"],
            "venue": title,
            "summary": title,
            "equations": [{"tex": r"\text{<script>alert(5)</script>} < x", "where": title, "says": title}],
            "recipe": {"lr": {"value": title, "source": "paper", "note": title}},
            "deviations": [title],
            "scale_gap": title,
            "runs": {"gla": {"impl": "gla"}, "softmax": {"impl": "softmax"}, "sigmoid": {"impl": "sigmoid"}},
            "claims": claims,
        }
    )


def hostile_plan(config: Config, profile: Profile) -> Plan:
    """A plan of papers whose texts attack the page."""
    papers = {f"paper-{place}": hostile_paper(title, place) for place, title in enumerate(TITLES)}
    return Plan(config, profile, papers, resolve(papers, profile))


def make(plan: Plan, results: Path, *, gaps: bool = True) -> None:
    """Write everything the site reads. With gaps: trainings diverge, fail and are missing, a suite fails."""
    rows, trainings = [], []
    for run in plan.runs.values():
        for task in sorted(set(plan.tasks.values())):
            for seed in plan.config.seeds:
                record = training(plan, run, task, seed, trouble(run, task, seed) if gaps else None)
                for suite in (name for name, trained in plan.tasks.items() if trained == task):
                    state, found = evaluation(plan, run, suite, seed, record)
                    if gaps and (run.impl, suite, seed) == ("retnet", "loss", 1):
                        state, found = {**state, "status": "failed", "reason": "RuntimeError: out of memory"}, []
                    record["suites"][suite] = state
                    rows += found
                trainings.append(record)
                log = results / "log" / "train" / f"{run.id}.{task}.seed{seed}.log"
                log.parent.mkdir(parents=True, exist_ok=True)
                log.write_text(f"step 1\rstep 2\n{record['status']} <b>&</b>\n", encoding="utf-8")
    if gaps and rows:
        rows = [row for k, row in enumerate(rows) if k % 97 != 5]
    results.mkdir(parents=True, exist_ok=True)
    aggregate.write(rows, trainings, results)
    write_json(results / "data" / plan.profile.data.folder.name / "manifest.json", MANIFEST)
    found = read(results / "measurements.csv", results / "runs.json", results / "items.parquet")
    bench = Bench(plan.profile, plan.config.seeds, plan.config.suites, found)
    write_json(results / "verdicts.json", judge(plan.papers, plan.runs, bench))
    keep_scores(rows, results)
    keep_answers(plan, results)
    impls = {run.impl for run in plan.runs.values()} | {"sla"}
    write_json(results / "proofs.json", [proof(impl, gaps).model_dump(mode="json") for impl in sorted(impls)])


def keep_scores(rows: list[dict[str, Any]], results: Path) -> None:
    """Of the test text 64 scores a cell, as many windows; softpick beats the others on each."""
    found = []
    for row in (row for row in rows if row["suite"] == "loss"):
        scores_I = generator("items", row["run"], row["task"], row["seed"]).normal(row["value"], 0.2, 64)
        found.append(items.Scores(row, scores_I - 9 * (row["impl"] == "softpick")))
    (results / "items.parquet").write_bytes(items.to_parquet(found))


def keep_answers(plan: Plan, results: Path) -> None:
    """What one model wrote: hostile texts, the second of them long."""
    run = next((run.id for run in plan.runs.values() if run.impl == "gla"), next(iter(plan.runs)))
    texts = [TITLES[0], "".join(f"{k} " for k in range(2_000)) + TITLES[1], *TITLES[2:], "\x00bell\x07 \x1b[31m\x7f\r"]
    raw = [
        {"task": task, "length": 128, "prompt": text, "output": text, "answers": [TITLES[0], "\b"], "score": 0.5}
        for task in ("needle-1", "mqar-4")
        for text in texts
    ]
    write_json(records.folder(run, "recall", 1, results / "runs") / "recall.raw.json", raw)


def proof(impl: str, gaps: bool) -> Proof:
    """Three properties in two settings; with gaps one that fails, one exempt, one that nobody wrote."""
    asked = {
        "causal_by_prefix": "Later tokens change nothing.",
        "weights": "They explain <b>it</b>.",
        "equation": TITLES[0],
    }
    answer = {"setting": "default", "number": 3.2e-16, "tolerance": 1e-9, "text": "largest change", "seconds": 0.01}
    found = [{**answer, "property": name, "status": "ok"} for name in asked]
    found.append({**found[0], "setting": "heads=2", "number": 4e-16})
    if impl in ("gla", "sla"):
        found[1] |= {"status": "not applicable", "number": None, "tolerance": None, "text": "no weights are defined"}
    if gaps and impl == "retnet":
        found[3] |= {"status": "failed", "number": 0.3, "text": "<i>a prefix</i> of 2 tokens is not close: 0.3 > 1e-09"}
        found[1] |= {"status": "exempt", "number": None, "tolerance": None, "text": "its rows are normed (0.2 > 1e-09)"}
        found[2] |= {"status": "missing", "number": None, "tolerance": None, "text": "no scalar loop"}
    return Proof.of(impl, asked, [Result.model_validate(result) for result in found])


def trouble(run: RunSettings, task: str, seed: int) -> tuple[str, str] | None:
    """(status, reason) of the trainings that do not end well."""
    return {
        ("sigmoid", "lm", 2): ("diverged", "the loss is not finite at step 310"),
        ("delta_net", "recall", 0): ("failed", "ValueError: <b>solve_triangular</b> met a singular matrix & stopped"),
        ("gla", "lm", 1): ("missing", "results/runs/gla/lm/seed1/run.json is missing; run snakemake to make it"),
    }.get((run.impl, task, seed))


def training(plan: Plan, run: RunSettings, task: str, seed: int, bad: tuple[str, str] | None) -> dict[str, Any]:
    head = {"run": run.id, "impl": run.impl, "args": run.args, "recipe": run.recipe, "profile": plan.profile.name}
    head |= {"task": task, "seed": seed, "suites": {}, "mixed": None}
    if bad and bad[0] == "missing":
        return {**head, "status": "missing", "reason": bad[1], "curve": []}
    settings = run.tasks[task].model_dump(mode="json")
    rng = generator("train", run.id, task, seed)
    done = 310 if bad else settings["steps"]
    floor = 1.4 + 0.5 * (1 - SKILL.get(run.impl, 0.1))
    steps = sorted({round(1 + (done - 1) * (k / 199) ** 1.5) for k in range(200)})
    curve = [[step, round(floor + 4.5 * step**-0.35 + 0.03 * float(rng.normal()), 4)] for step in steps]
    size = 172_000 + int(rng.integers(0, 900))
    return {
        **head,
        "status": bad[0] if bad else "ok",
        "reason": bad[1] if bad else None,
        "step": done,
        "steps": settings["steps"],
        "settings": settings,
        "parameters": size,
        "reference_parameters": 172_500,
        "flops_per_token": 4.1e5 * (1.3 if run.impl == "delta_net" else 1.0),
        "state_bytes": 8_192 if run.impl in ("gla", "delta_net", "retnet") else 33_280,
        "within_budget": run.impl != "retnet",
        "mlp_width": 128,
        "tokens": done * settings["batch"] * settings["length"],
        "bytes_per_token": 3.1 if task == "lm" else None,
        "final_loss": None if bad else curve[-1][1],
        "seconds": round(float(rng.uniform(8, 45)), 2),
        "commit": COMMIT,
        "versions": {"python": "3.11.9", "torch": "2.13.0"},
        "hardware": {"machine": "x86_64", "processor": "A <fast> processor", "cores": 2},
        "device": "cpu",
        "threads": 1,
        "curve": curve,
        "tune": grid(run, task),
    }


def grid(run: RunSettings, task: str) -> dict[str, Any] | None:
    """Pilots of three rates for language modelling: one mechanism chose the last of them, one pilot diverged."""
    if task != "lm" or run.impl not in ("softmax", "gla"):
        return None
    losses = {"softmax": (6.1, 5.9, 6.0), "gla": (6.2, None, 5.8)}[run.impl]
    pilots = [
        {"lr": lr, "loss": loss, "reason": None if loss else "the loss is <nan> at step 3", "seconds": 1.0}
        for lr, loss in zip((0.002, 0.004, 0.008), losses, strict=True)
    ]
    choice, edge = {"softmax": (0.004, None), "gla": (0.008, "highest")}[run.impl]
    told = {"run": run.id, "task": task, "seed": 1_000_000, "steps": 80, "given": 0.004, "status": "ok", "reason": None}
    return {**told, "rates": pilots, "choice": choice, "edge": edge, "seconds": 3.0, "commit": COMMIT}


def evaluation(
    plan: Plan, run: RunSettings, suite: str, seed: int, record: Mapping[str, Any]
) -> tuple[dict, list[dict]]:
    """(state of the suite, its rows), blocked where training did not end well."""
    state = {"status": "ok", "reason": None, "seconds": 1.5, "commit": COMMIT, "missing": []}
    if record["status"] != "ok":
        return {**state, "status": "blocked", "reason": f"training {record['status']}: {record['reason']}"}, []
    return state, list(rows(plan, run, suite, seed))


def rows(plan: Plan, run: RunSettings, suite: str, seed: int) -> Iterator[dict[str, Any]]:
    module = load_suite(suite)
    train = plan.profile.tasks[module.TASK].length
    skill = SKILL.get(run.impl, 0.1)
    rng = generator("rows", run.id, suite, seed)
    shared = 0.01 * float(generator("seed", suite, seed).normal())
    for task, length, metric in module.cells(plan.profile):
        far = math.log2((length or train) / train) if (length or train) >= train else 0.0
        n = 512
        if module.METRICS[metric].unit == "share":
            load = int(task.rpartition("-")[2]) if task.rpartition("-")[2].isdigit() else 1
            p = (
                skill / load
                if suite == "sinks"
                else skill ** (math.log2(load + 1) / 2) * (0.93 if run.impl != "sigmoid" else 0.5) ** far
            )
            value = round(min(1.0, max(0.0, p + 0.03 * float(rng.normal()))) * n) / n
        elif module.METRICS[metric].unit == "weight":
            value = abs(0.3 * skill + 0.1 * float(rng.normal()))
        else:
            value = 2.1 + 0.25 * (1 - skill) + shared + 0.008 * float(rng.normal()) + 0.05 * far * (1.1 - skill)
            value = math.exp(value * 2) if metric == "perplexity" else value
            n = 32_768
        head = {"run": run.id, "impl": run.impl, "seed": seed, "suite": suite, "task": task, "length": length}
        unit = module.METRICS[metric].unit
        yield {**head, "metric": metric, "value": value, "n": n, "stderr": 0.01, "unit": unit, "commit": COMMIT}


def generator(*parts: Any) -> np.random.Generator:
    """Random numbers that depend on these words alone."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


MANIFEST = {
    "sources": [
        {
            "name": "Invented <text> & more",
            "version": "1.0",
            "url": "https://example.org/text",
            "licence": "CC0-1.0",
            "credit": "nobody",
            "sha256": "ab" * 32,
        }
    ],
    "settings": {"source": "wiki", "vocab": 4096},
    "splits": {name: {"articles": 900, "bytes": 123_456, "tokens": 40_000} for name in ("train", "valid", "test")},
    "tokenizer": {"kind": "bpe", "vocab": 4096, "end_of_text": 0, "sha256": "cd" * 32},
    "files": {"train.npy": "ef" * 32, "tokenizer.json": "cd" * 32},
}


def ordinary_paper() -> Paper:
    """A paper that runs eight mechanisms, one of them twice."""
    impls = ("softmax", "linear_attention", "retnet", "gla", "delta_net", "gated_delta_net", "sigmoid", "softpick")
    compare = {"baseline": "softmax", "margin": 0.02, "margin_from": "ours", "where": "abstract", "kind": "compare"}
    loss = {"metric": "loss/test/bits_per_byte", "expect": "not_higher"}
    claims: list[dict[str, Any]] = [
        {"id": f"{impl.replace('_', '-')}-loss", "quote": f"{impl} is no worse", "run": impl, **compare, **loss}
        for impl in impls[1:]
    ]
    part = {key: compare[key] for key in ("baseline", "margin", "margin_from", "kind")}
    more = {**part, "baseline": "gla", "run": "delta_net", "expect": "higher"}
    parts = [{**more, "metric": "recall/mqar-8/accuracy"}, {**more, "metric": "recall/needle-8/accuracy@8x"}]
    claims.append(
        {"id": "both", "quote": "more recall, at any length", "where": "§4", "kind": "all_of", "parts": parts}
    )
    return Paper.model_validate(
        {
            "title": "Eight mechanisms side by side",
            "arxiv": "2501.00001",
            "year": 2025,
            "authors": ["Ada Lovelace", "Zoë Ångström"],
            "summary": "A survey that `never` was; see [its text](https://arxiv.org/abs/2501.00001).",
            "equations": [{"tex": r"y_t = \sum_{s \le t} A_{ts} v_s", "where": "eq. 1"}],
            "recipe": {"lr": {"value": 0.004, "source": "paper"}},
            "scale_gap": "paper: large; here: small",
            "runs": {**{impl: {"impl": impl} for impl in impls}, "other": {"impl": "sigmoid", "args": {"n": 1}}},
            "claims": claims,
        }
    )


def whole_plan() -> Plan:
    """The laptop profile with the ordinary paper and all hostile ones."""
    config, profile = Config(suites=("loss", "recall", "sinks")), load_profile("laptop")
    papers = {"eight": ordinary_paper(), **hostile_plan(config, profile).papers}
    return Plan(config, profile, papers, resolve(papers, profile))


def keep_builds(plan: Plan, results: Path) -> None:
    """The build, and one before it under another version that judged and measured one thing otherwise."""
    latest = history.snapshot(plan, results, datetime(2026, 1, 2, tzinfo=UTC))
    before = copy.deepcopy(latest)
    before["time"], before["versions"]["torch"] = "2026-01-01 00:00:00", ["<2.12.0>"]
    before["verdicts"]["eight/both"]["verdict"] = "untested"
    cells = next(cells for id, cells in before["values"].items() if id.startswith("softmax-"))
    cells["loss/test/bits_per_byte@128"] = {"0": 3.0, "1": 3.01, "2": 3.02}
    for record in (before, latest):
        history.keep(record, results / "history")


@lru_cache
def built() -> Path:
    """The folder of a site made from `whole_plan`, once a process; its results lie beside it."""
    results = Path(tempfile.mkdtemp(prefix="attest-site-"))
    atexit.register(shutil.rmtree, results, ignore_errors=True)
    plan = whole_plan()
    make(plan, results)
    keep_builds(plan, results)
    site.build(load(plan, results), results / "site")
    return results / "site"
