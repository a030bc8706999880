"""Train one run on one task with one seed.

    results/runs/<run>/<task>/seed<k>/model.safetensors    weights; no tensors when training failed
    results/runs/<run>/<task>/seed<k>/curve.jsonl          one line a step, as far as it got
    results/runs/<run>/<task>/seed<k>/run.json             settings, status, what it took; written last
    results/state/<run>/<task>/seed<k>/state.pt            to go on from after a kill; removed at the end

A run that fails for its own reasons (its code raises, its numbers are not finite) is a result: it is recorded with
the reason and the command succeeds, unless `--strict`. Killed and started again, it ends in the same bytes.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from harness import lock, parallel, provenance, tasks
from harness.arguments import device_name, seed, threads
from harness.errors import UserError, leave
from harness.files import remove, write_atomic, write_json
from harness.job import Job, find, with_grid
from harness.progress import Progress
from harness.runs import canonical


def train(job: Job, device: str, say: Callable[[str], None], group: parallel.Group = parallel.ALONE) -> dict[str, Any]:
    """Train, write the files above, and return the record. Raises UserError for faults that are not the run's.

    Of several processes the first alone writes.
    """
    import torch

    from harness.deterministic import be_deterministic
    from harness.fit import Diverged
    from harness.memory import said

    be_deterministic(device)
    task = tasks.load(job.task).Task(job.settings, job.seed if job.order is None else job.order, job.run.data.folder)
    record = _record(job, task, device)
    fit = None
    try:
        with group.together():
            fit = _prepare(job, task, device, record, say, group)
        _run(job, fit, record["fingerprint"], say)
        outcome = ("ok", None)
    except Diverged as error:
        outcome = ("diverged", str(error))
    except torch.OutOfMemoryError as error:
        outcome = ("failed", f"out of memory: {said(error)}")
    except (UserError, OSError):
        raise
    except Exception as error:
        traceback.print_exc()
        outcome = ("failed", _last_line(error))
    record |= {"status": outcome[0], "reason": outcome[1]}
    return _write(job, fit, record) if group.leads else record


def _record(job: Job, task: tasks.Task, device: str) -> dict[str, Any]:
    """What is known of the run before it starts; what a run that cannot be built would lack is None."""
    import torch

    return {
        "run": job.run.id,
        "impl": job.run.impl,
        "args": job.run.args_at(job.task),
        "recipe": job.run.recipe,
        "task": job.task,
        "seed": job.seed,
        "order": job.order,
        "tune": job.grid,
        "profile": job.profile,
        "settings": job.settings.model_dump(),
        "model": None,
        "parameters": None,
        "reference_parameters": None,
        "within_budget": None,
        "mlp_width": None,
        "step": 0,
        "steps": job.settings.steps,
        "tokens": 0,
        "bytes_per_token": task.bytes_per_token,
        "final_loss": None,
        "seconds": 0.0,
        "commit": provenance.commit(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(device),
        "device": device,
        "threads": torch.get_num_threads(),
        "processes": [],
        "halved": [],
    }


def _prepare(
    job: Job,
    task: tasks.Task,
    device: str,
    record: dict[str, Any],
    say: Callable[[str], None],
    group: parallel.Group,
) -> Any:
    """The fit to run, resumed where a state of this very run was left; what the model is goes into the record."""
    from harness import cost, state
    from harness.fit import Fit
    from harness.model import build, shape_of

    settings = job.settings
    if job.grid and job.grid["choice"] is None:
        raise ValueError(f"no rate of the grid could be trained: {job.grid['reason']}")
    shape = shape_of(job.run.impl, record["args"], settings.model, task.vocab)
    matched = cost.match(shape, settings.model.heads)
    record |= {
        "model": dataclasses.asdict(matched.shape),
        "parameters": matched.parameters,
        "reference_parameters": matched.reference_parameters,
        "within_budget": matched.within_budget,
        "mlp_width": matched.shape.mlp,
    }
    record["fingerprint"] = fingerprint(record, task)
    fit = Fit(build(matched.shape, job.seed), task, settings, job.seed, device, group)
    saved = state.load(job.state_file, record["fingerprint"], say)
    if saved is not None:
        fit.restore(saved)
        others = saved["processes"][-1] != group.size
        rounding = f", of {saved['processes'][-1]} processes: equal but for rounding" if others else ""
        say(f"resumed at step {fit.steps_done} from {job.state_file}{rounding}")
    return fit


def fingerprint(record: dict[str, Any], task: tasks.Task) -> str:
    """A digest of everything that decides the weights: settings, model, code, data, versions, instructions."""
    names = ("run", "task", "seed", "order", "settings", "model", "versions", "threads")
    whole = {name: record[name] for name in names} | {"code": provenance.code(), "data": task.digest}
    # which of a machine's GPUs, and how many cores it has, decides nothing; a resumed run may get another one, or
    # another number of processes, which the record tells
    whole["hardware"] = {name: value for name, value in record["hardware"].items() if name != "cores"}
    whole["settings"] = {name: value for name, value in record["settings"].items() if name != "processes"}
    whole["device"] = record["device"].partition(":")[0]
    return hashlib.sha256(canonical(whole).encode()).hexdigest()


def _run(job: Job, fit: Any, mark: str, say: Callable[[str], None]) -> None:
    """Step to the end, saving now and then; on SIGTERM or SIGINT save, and exit as a program killed by it does."""
    from harness import state

    caught: list[int] = []
    kinds = (signal.SIGTERM, signal.SIGINT)
    before = {kind: signal.signal(kind, lambda kind, _: caught.append(kind)) for kind in kinds}
    agreed = 0
    progress = Progress(fit.settings.steps, f"{job.run.id} {job.task} seed {job.seed}", fit.steps_done)

    def stopped(_: int) -> bool:
        nonlocal agreed  # a signal reaches several processes at different steps; they stop at the same one
        agreed = max(fit.group.each(caught[0] if caught else 0))
        return agreed > 0

    def save() -> None:
        whole = fit.state()
        if fit.group.leads:
            state.save(job.state_file, mark, whole)

    def after(point: Any) -> None:
        if fit.group.leads:
            progress.show(point)
        if point.step % fit.settings.save_every == 0 and point.step < fit.settings.steps:
            save()

    try:
        fit.run(until=stopped, after=after)
        cut = agreed > 0 and fit.steps_done < fit.settings.steps
        if cut:
            save()  # while a second signal still changes nothing
    finally:
        progress.close()
        for kind, handler in before.items():
            signal.signal(kind, handler)
    if cut:
        name = signal.Signals(agreed).name
        say(f"stopped by {name} after step {fit.steps_done}; the same command goes on from there")
        sys.exit(128 + agreed)


def _write(job: Job, fit: Any, record: dict[str, Any]) -> dict[str, Any]:
    """The three files of the run, its record last, which is returned; then the resume state goes."""
    from safetensors.torch import save

    ok = record["status"] == "ok"
    record = {key: value for key, value in record.items() if key != "fingerprint"}
    if fit:
        record |= {"step": fit.steps_done, "tokens": fit.tokens, "seconds": round(fit.seconds, 3)}
        record |= {"processes": fit.processes, "halved": fit.memory.halved}
        record |= {"final_loss": fit.final_loss() if ok else None}
    weights = {name: tensor.cpu().contiguous() for name, tensor in fit.model.state_dict().items()} if ok else {}
    content = save(weights)
    record["digest"] = hashlib.sha256(content).hexdigest()
    write_atomic(job.folder / "model.safetensors", content)
    write_atomic(job.folder / "curve.jsonl", "".join(fit.curve) if fit else "")
    write_json(job.folder / "run.json", record)
    remove(job.state_file)
    return record


def _last_line(error: Exception) -> str:
    if isinstance(error, parallel.Elsewhere):
        return str(error)
    return traceback.format_exception_only(error)[-1].strip().splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.train", description="Train a run on a task with one seed.")
    parser.add_argument("run", help="a run id, such as softmax-1a2b3c4d")
    parser.add_argument("--task", required=True, help=f"one of {', '.join(tasks.names())}")
    parser.add_argument("--seed", type=seed, required=True)
    parser.add_argument("--profile", required=True, help="a file of config/profiles, without .yaml")
    parser.add_argument(
        "--device", type=device_name, default="auto", help="auto, cpu, cuda or cuda:N (default: %(default)s)"
    )
    parser.add_argument("--processes", type=threads, help="that train it together (default: the profile's)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when the run fails or diverges")
    given = parser.parse_args()
    job = with_grid(find(given.run, given.task, given.seed, given.profile))
    parallel.spread("harness.train", given.processes or job.settings.processes)
    if parallel.leads():
        lock.hold(job.state_file.with_name("lock"), wait=True)  # of a job that outlived its killed workflow

    def say(line: str) -> None:
        if parallel.leads():
            print(line, file=sys.stderr, flush=True)

    with parallel.joined(given.device) as (group, device):
        record = train(job, device, say, group)
    took = f"{record['step']} of {record['steps']} steps, {record['seconds']:.1f} s"
    say(f"{job.run.id} {job.task} seed {job.seed}: {record['status']}, {took}{reason(record)}")
    return 1 if given.strict and record["status"] != "ok" else 0


def reason(record: dict[str, Any]) -> str:
    return f": {record['reason']}" if record["reason"] else ""


if __name__ == "__main__":
    leave(main)
