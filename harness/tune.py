"""Choose a run's learning rate: results/runs/<run>/<task>/tune.json, the whole grid and the choice.

    python -m harness.tune softmax-1a2b3c4d --task lm --seed 1000000 --profile gpu

Every rate of the profile's grid trains one pilot, all from the same weights on the same data of a seed that no run has;
the rate whose pilot costs least on held-out rows is chosen. Baseline and method get the same rates and the same steps.
A pilot that diverges or raises is out. Where a paper's recipe gives a run its rate, there is no grid. A killed command
has written nothing and starts anew.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from harness import lock, provenance, tasks
from harness.arguments import device_name, seed
from harness.errors import UserError, leave
from harness.files import write_json
from harness.job import Job, find, tune_file
from harness.runs import tuned


def tune(job: Job, device: str) -> dict[str, Any]:
    """The record of a grid; nothing is written. `status` is `failed` with the reason where no pilot has a number."""
    from harness import cost
    from harness.deterministic import be_deterministic
    from harness.model import shape_of

    be_deterministic(device)
    start = time.perf_counter()
    settings, pilots, reason = job.settings, [], None
    try:
        task = tasks.load(job.task).Task(settings, job.seed, job.run.data.folder)
        shape = shape_of(job.run.impl, job.run.args_at(job.task), settings.model, task.vocab)
        fitted = cost.match(shape, settings.model.heads).shape
        pilots = [pilot(fitted, task, shortened(settings, rate), job.seed, device) for rate in settings.tune.rates]
    except (UserError, OSError):
        raise
    except Exception as error:  # whatever a mechanism raises is the reason why it has no rate
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
    choice = chosen(pilots)
    if choice is None and reason is None:
        reason = "; ".join(f"{each['lr']:g}: {each['reason']}" for each in pilots)
    return {
        "run": job.run.id,
        "task": job.task,
        "seed": job.seed,
        "steps": settings.tune.steps,
        "given": settings.lr,
        "status": "ok" if choice is not None else "failed",
        "reason": reason,
        "rates": pilots,
        "choice": choice,
        "edge": edge(choice, settings.tune.rates),
        "seconds": round(time.perf_counter() - start, 3),
        "commit": provenance.commit(),
    }


def shortened(settings: Any, rate: float) -> Any:
    """The settings of a pilot: another rate, fewer steps, a warm-up of the same share of them."""
    steps = settings.tune.steps
    less = {"lr": rate, "steps": steps, "warmup": round(settings.warmup * steps / settings.steps)}
    if hasattr(settings, "valid_every"):
        less["valid_every"] = steps
    return settings.model_copy(update=less)


def pilot(shape: Any, task: tasks.Task, settings: Any, seed: int, device: str) -> dict[str, Any]:
    """One rate: its loss on held-out rows in nats a target, None with the reason where it diverged or raised."""
    from harness.fit import Diverged, Fit
    from harness.loss import nats_per_target
    from harness.model import build

    fit = Fit(build(shape, seed), task, settings, seed, device)
    loss, reason = None, None
    try:
        fit.run(until=lambda _: False, after=lambda _: None)
        loss = nats_per_target(fit.model, task.held_out(), device)
        if loss is None or not math.isfinite(loss):
            loss, reason = None, f"the held-out loss is {loss} after {fit.steps_done} steps"
    except Diverged as error:
        reason = str(error)
    except (UserError, OSError):
        raise
    except Exception as error:  # too high a rate may lead to a matrix that has no inverse
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
    return {"lr": settings.lr, "loss": loss, "reason": reason, "seconds": round(fit.seconds, 3)}


def chosen(pilots: Sequence[Mapping[str, Any]]) -> float | None:
    """The rate with the least held-out loss, of equals the lowest; None where no pilot has a number."""
    ended = [(each["loss"], each["lr"]) for each in pilots if each["loss"] is not None]
    return min(ended)[1] if ended else None


def edge(choice: float | None, rates: Sequence[float]) -> str | None:
    """`lowest` or `highest` where the choice is an end of the grid, so that a better rate may lie beyond it."""
    return {rates[0]: "lowest", rates[-1]: "highest"}.get(choice) if choice is not None else None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.tune", description="Choose a run's learning rate.")
    parser.add_argument("run", help="a run id, such as softmax-1a2b3c4d")
    parser.add_argument("--task", required=True, help=f"one of {', '.join(tasks.names())}")
    parser.add_argument("--seed", type=seed, required=True, help="of all pilots; one that no run is trained with")
    parser.add_argument("--profile", required=True, help="a file of config/profiles, without .yaml")
    parser.add_argument(
        "--device", type=device_name, default="auto", help="auto, cpu, cuda or cuda:N (default: %(default)s)"
    )
    given = parser.parse_args()
    job = find(given.run, given.task, given.seed, given.profile)
    if not tuned(job.run, job.task):
        why = "its recipe gives the rate" if job.settings.tune else f"the profile {given.profile!r} has no tune block"
        raise UserError(f"{given.run} has no grid on {given.task}: {why}; train it without one")
    lock.hold(job.state_file.parents[1] / "tune.lock", wait=True)  # of a job that outlived its killed workflow

    from harness.device import claim

    with claim(given.device) as device:
        record = tune(job, device)
    write_json(tune_file(job), record)
    for each in record["rates"]:
        print(f"{each['lr']:g}: {each['reason'] or each['loss']}", file=sys.stderr)
    print(f"{tune_file(job)}: {record['choice'] or record['reason']}, {record['seconds']:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    leave(main)
