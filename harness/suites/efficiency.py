"""What training, reading and writing cost in time and memory as rows grow, beside softmax attention in one process.

The model and the softmax reference of its task (same width, layers and parameters) take turns, round after round; a
ratio is taken inside a round and its median over rounds is given, with the least and the greatest. Below 1 is cheaper
than softmax.

    train      one optimizer step on as many random rows as `tokens` hold, one at least, in the training's precision
    prefill    one row read, its state kept, in fp32
    decode     one more token after a row of that length, the mean of `decoded` in turn, in fp32
    peak       the most memory that a training step holds beyond weights and optimizer (see `harness.peak`)
    state      what decoding one row carries on, as bytes
    machine    threads, and the processor's clock when the suite began

ratio, ratio_low, ratio_high, milliseconds and tokens_per_second at each length; mfu, a training step's counted FLOPs
over what the device could have done in the time, where the profile gives `peak_tflops`. crossover is the length from
which the median ratio stays below 1; its interval is that of the rounds' least and greatest ratios; "none up to L" is
a gap that says so. growth is the time of one more token at the greatest length over that at the least.

Training has half of `seconds`, reading and writing a quarter each; where that does not reach for three rounds of a
length, that length and all beyond are gaps, as are those that might hold more than `gigabytes`. Time depends on no
seed, so only the trainings of `seeds` are measured. n counts rounds. What a clock measures differs from one evaluation
to the next: such metrics are marked `timed`, and builds are not compared by them. The clock counts the process's CPU
seconds on one CPU thread, else the wall's. Softmax against itself shows the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from harness.closed import Ascending, Count, Distinct, Positive, Seed
from harness.config import Profile, SuiteSettings
from harness.metrics import Metric
from harness.suites import Cell, Gap, Row
from harness.timing import Clock, Rounds, clock_of, crossover, megahertz

if TYPE_CHECKING:
    from harness.efficiency import Found, Prepare

TASK = "lm"
METRICS = {
    "ratio": Metric(unit="1", better="lower", timed=True, summary="time over softmax's, median of the rounds"),
    "ratio_low": Metric(unit="1", better="lower", timed=True, summary="the least ratio of a round"),
    "ratio_high": Metric(unit="1", better="lower", timed=True, summary="the greatest ratio of a round"),
    "milliseconds": Metric(unit="ms", better="lower", timed=True, summary="of a step, a row read, a token written"),
    "tokens_per_second": Metric(unit="tokens/s", better="higher", timed=True, summary="of the median time"),
    "mfu": Metric(unit="share", better="higher", timed=True, summary="counted FLOPs over the device's peak"),
    "bytes": Metric(unit="bytes", better="lower", summary="memory"),
    "bytes_ratio": Metric(unit="1", better="lower", summary="memory over softmax's"),
    "crossover": Metric(unit="tokens", better="lower", timed=True, summary="length from which softmax is slower"),
    "crossover_low": Metric(unit="tokens", better="lower", timed=True, summary="that of the rounds' least ratios"),
    "crossover_high": Metric(unit="tokens", better="lower", timed=True, summary="that of the rounds' greatest ratios"),
    "growth": Metric(unit="1", better="lower", timed=True, summary="decoding at the greatest length over the least"),
    "threads": Metric(unit="threads", better="none", summary="of the CPU"),
    "megahertz": Metric(unit="MHz", better="none", timed=True, summary="the processor's clock"),
}
PHASES = ("train", "prefill", "decode")
SHARES = {"train": 0.5, "prefill": 0.25, "decode": 0.25}  # of the time
TIMES = ("ratio", "ratio_low", "ratio_high", "milliseconds", "tokens_per_second")
CROSSOVER = ("crossover", "crossover_low", "crossover_high")
HELD = {"train": "peak", "decode": "state"}  # whose bytes are counted on the way
FEWEST = 3  # rounds
SOFTMAX = "this is softmax"


class Settings(SuiteSettings):
    lengths: Ascending[Count] = (128, 512, 2048, 4096)  # tokens of a row
    tokens: Count = 1024  # of a training step
    rounds: Annotated[int, Field(ge=FEWEST, le=1000)] = 5  # at most
    decoded: Count = 8  # tokens written in a round
    seconds: Positive = 8.0  # for all of it
    gigabytes: Positive = 1.5  # of a training step
    peak_tflops: Positive | None = None  # of the device, in the training's precision
    seeds: Distinct[Seed] = (0,)  # of the trainings that are measured


def cells(profile: Profile) -> list[Cell]:
    """Everything this suite measures under the profile."""
    return announced(profile.suite("efficiency"))


def announced(wanted: Settings) -> list[Cell]:
    """The same, of the suite's settings."""
    by_length = [(phase, metric) for phase in PHASES for metric in TIMES]
    by_length += [("train", "mfu")] if wanted.peak_tflops else []
    by_length += [(task, metric) for task in HELD.values() for metric in ("bytes", "bytes_ratio")]
    return [
        *((task, length, metric) for task, metric in by_length for length in wanted.lengths),
        *((phase, None, metric) for phase in PHASES for metric in CROSSOVER),
        ("decode", None, "growth"),
        ("machine", None, "threads"),
        ("machine", None, "megahertz"),
    ]


def evaluate(model: Any, settings: Any, profile: Profile, seed: int, device: Any) -> Iterator[Row | Gap]:
    """Rows of every cell, and gaps where time or memory do not reach."""
    from harness.model import build, shape_of
    from impls import softmax as reference  # so that what is timed beside it depends on its code (harness.dependencies)

    wanted = profile.suite("efficiency")
    if seed not in wanted.seeds:
        reason = f"timed with seed {wanted.seeds[0]} only"
        yield from (Gap(*cell, reason) for cell in announced(wanted))
        return
    name = reference.__name__.rpartition(".")[2]
    softmax = build(shape_of(name, {}, settings.model, model.shape.vocab), seed=0).to(device).eval()
    yield from measure(model, softmax, settings, wanted, device)


def measure(model: Any, softmax: Any, settings: Any, wanted: Settings, device: Any) -> Iterator[Row | Gap]:
    """The suite on two models; `settings` are those of a training."""
    import torch

    from harness import efficiency

    rate = megahertz(device)
    yield Row("machine", None, "threads", torch.get_num_threads(), 1)
    yield Row("machine", None, "megahertz", rate, 1) if rate else Gap("machine", None, "megahertz", "not told")
    training = efficiency.Training(model, softmax, settings, wanted.tokens, device)
    flops = (lambda length: training_flops(model, length)) if wanted.peak_tflops else None
    same, clock = model.shape == softmax.shape, clock_of(device)
    yield from phase("train", training.prepare, wanted, clock, same, flops)
    del training
    yield from phase("prefill", efficiency.reading(model, softmax, device), wanted, clock, same)
    decoding = efficiency.writing(model, softmax, wanted.decoded, device)
    yield from phase("decode", decoding, wanted, clock, same)


def training_flops(model: Any, length: int) -> float:
    """Counted FLOPs of a training step for each token."""
    from harness import cost

    return cost.training_flops(model.shape, length)


def phase(
    name: str,
    prepare: Prepare,
    wanted: Settings,
    clock: Clock,
    same: bool = False,
    flops: Callable[[int], float] | None = None,
) -> Iterator[Row | Gap]:
    """Everything of `train`, `prefill` or `decode`; `same` where both sides are softmax."""
    from harness.efficiency import Limits, over_lengths

    limits = Limits(wanted.rounds, FEWEST, SHARES[name] * wanted.seconds, wanted.gigabytes * 1e9)
    cells, rounds, reason = announced(wanted), {}, ""
    for found in over_lengths(prepare, wanted.lengths, limits, clock):
        if found.rounds is None:
            reason = found.reason
            tasks = (name, HELD.get(name))
            yield from (Gap(*cell, reason) for cell in cells if cell[0] in tasks and cell[1] == found.length)
            continue
        rounds[found.length] = found.rounds
        yield from rows(name, found, wanted, flops)
    yield from crossings(name, rounds, SOFTMAX if same else reason)
    if name == "decode":
        yield growth(rounds, reason)


def rows(name: str, found: Found, wanted: Settings, flops: Callable[[int], float] | None) -> Iterator[Row]:
    """What was measured of one length."""
    assert found.rounds is not None
    assert found.pair is not None
    length, ratios, seconds, tokens = found.length, found.rounds.ratios, found.rounds.seconds, found.pair.tokens
    each = seconds / (tokens if name == "decode" else 1)
    values = (found.rounds.ratio, min(ratios), max(ratios), 1e3 * each, tokens / seconds)
    for metric, value in zip(TIMES, values, strict=True):
        yield Row(name, length, metric, value, len(ratios), items=ratios if metric == "ratio" else ())
    if flops and wanted.peak_tflops:
        share = flops(length) * tokens / seconds / (wanted.peak_tflops * 1e12)
        yield Row(name, length, "mfu", share, len(ratios))
    if found.pair.held:
        ours, theirs = found.pair.held
        yield Row(HELD[name], length, "bytes", ours, 1)
        yield Row(HELD[name], length, "bytes_ratio", ours / theirs, 1)


def crossings(name: str, rounds: Mapping[int, Rounds], reason: str) -> Iterator[Row | Gap]:
    """From which length softmax is slower, by the medians and by the least and the greatest ratios."""
    if reason == SOFTMAX or len(rounds) < 2:
        yield from (Gap(name, None, metric, reason or "one length only") for metric in CROSSOVER)
        return
    for metric, pick in zip(CROSSOVER, (median, min, max), strict=True):
        at = crossover(list(rounds), [pick(z.ratios) for z in rounds.values()])
        none = Gap(name, None, metric, f"none up to {max(rounds):,} tokens")
        yield none if at is None else Row(name, None, metric, at, len(rounds))


def growth(rounds: Mapping[int, Rounds], reason: str) -> Row | Gap:
    """How much longer one more token takes at the greatest length than at the least."""
    if len(rounds) < 2:
        return Gap("decode", None, "growth", reason or "one length only")
    first, *_, last = rounds.values()
    return Row("decode", None, "growth", last.seconds / first.seconds, len(rounds))
