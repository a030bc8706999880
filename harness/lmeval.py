"""Tasks of lm-evaluation-harness 0.4.13, asked of any model through `harness.adapter`.

Three things are done otherwise than by its `hf` model, each for a reason: batches hold prompts of one length and no
padding, options of one question share the work on their context, and a whole text is opened by one token (see
`harness.text`). `middle` cuts prompts that are too long in their middle, as LongBench does (arXiv:2308.14508 §4.1);
else they lose their beginning.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import lm_eval
from datasets.exceptions import DatasetsError
from lm_eval.api.model import LM
from lm_eval.api.task import Task
from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from harness.adapter import Answerer
from harness.errors import UserError
from harness.room import refuse_budget
from harness.text import Text, split

TASKS = Path(lm_eval.__file__).parent / "tasks"


class Unreached(UserError):
    """Data that the network did not bring."""


class Generation(NamedTuple):
    """What was read and written for one request."""

    prompt: str  # after truncation
    prompt_tokens: int
    output: str
    at_limit: bool  # the budget ended it


class Harness(LM):
    """The interface that lm-evaluation-harness asks of a model."""

    def __init__(self, answerer: Answerer, text: Text, middle: bool = False):
        super().__init__()
        self.answerer, self.text, self.middle = answerer, text, middle
        self.generations: list[Generation] = []  # of the last call, in the order of its requests

    def loglikelihood(self, requests: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
        """(log p, is it what greedy decoding gives) of each continuation."""
        pairs = [self._pair(*request.args) for request in requests]
        return [(score.logp, score.greedy) for score in self.answerer.score(pairs)]

    def loglikelihood_rolling(self, requests: Sequence[Any], **_: Any) -> list[float]:
        """log p of each text, opened by one token that is not scored."""
        texts = [self.text.encode(request.args[0], opened=False) for request in requests]
        return self.answerer.rolling(texts, self.text.first)

    def generate_until(self, requests: Sequence[Any], **_: Any) -> list[str]:
        """Greedy text up to the first of its stop strings. Raises ValueError before anything is generated."""
        asked = [(request.args[0], *_limits(request.args[1])) for request in requests]
        for _context, budget, _until in asked:
            refuse_budget(budget, self.answerer.window)
        groups: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(list)
        for place, (_context, budget, until) in enumerate(asked):
            groups[budget, until].append(place)
        found: dict[int, Generation] = {}
        for (budget, until), places in groups.items():
            prompts = [self._fit(self.text.encode(asked[place][0]), budget) for place in places]
            outputs = self.answerer.generate(prompts, budget, lambda tokens, until=until: self._ends(tokens, until))
            for place, prompt, tokens in zip(places, prompts, outputs, strict=True):
                at_limit = len(tokens) == budget and not self._ends(tokens, until)
                output = cut(self.text.decode(tokens), until)
                found[place] = Generation(self.text.decode(prompt), len(prompt), output, at_limit)
        self.generations = [found[place] for place in range(len(requests))]
        return [generation.output for generation in self.generations]

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        if context:
            before, after = split(context, continuation, self.text.encode)
        else:
            before, after = [], self.text.encode(continuation, opened=False)
        return before or [self.text.first], after

    def _fit(self, ids: list[int], budget: int) -> list[int]:
        room = self.answerer.window - budget
        if self.middle and len(ids) > room > 1:
            half = room // 2
            return ids[:half] + ids[-half:]
        return ids[-room:]

    def _ends(self, tokens: list[int], until: tuple[str, ...]) -> bool:
        """Whether the last token ended the text or completed a stop string; a token spells at least one byte."""
        if tokens[-1] == self.text.end:
            return True
        reach = max((len(stop.encode()) for stop in until), default=0)
        return bool(until) and cut(tail := self.text.decode(tokens[-reach - 4 :]), until) != tail


def cut(text: str, until: Sequence[str]) -> str:
    """The text before the first of the stop strings."""
    return text[: min((at for stop in until if (at := text.find(stop)) >= 0), default=len(text))]


def _limits(arguments: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
    """(budget, stop strings) of a request. Raises ValueError for what would silently mean something else."""
    until = arguments.get("until", [])
    if not isinstance(until, list | tuple) or not all(isinstance(stop, str) and stop for stop in until):
        raise ValueError(f"until: {until!r} must be a list of texts; a single text would stop at each of its letters")
    for stop in until:
        if "\\" in stop:
            raise ValueError(f"until: {stop!r} holds a backslash; YAML reads \\n as a line break in double quotes only")
    if arguments.get("do_sample"):
        raise ValueError("do_sample: answers are greedy here, so that they can be repeated")
    if "max_gen_toks" not in arguments:
        raise ValueError("max_gen_toks: a generation needs a budget of tokens")
    return int(arguments["max_gen_toks"]), tuple(until)


def load(path: str, data: Path | None) -> Task:
    """A task with its data, by the place of its YAML among those of lm-eval (its whole index takes seconds to read).

    `data` is a folder with the data set, in place of the Hub. Raises UserError when the data cannot be had, and then
    Unreached when they were to come over the network, which may be better tomorrow.
    """
    config = {key: value for key, value in load_yaml(TASKS / path).items() if key not in ("tag", "group")}
    if data is not None:
        config["dataset_path"] = str(data)
    with _quiet():
        try:
            (task,) = TaskManager(include_defaults=False).load([config])["tasks"].values()
        except (OSError, ValueError, DatasetsError) as error:
            (first, *_) = str(error).strip().splitlines() or [type(error).__name__]
            kind = UserError if data is not None else Unreached
            raise kind(f"its data {config['dataset_path']} cannot be loaded: {first}") from None
    return task


def run(model: LM, task: Task, limit: int | None) -> list[dict[str, Any]]:
    """What lm-eval logs of each question of a task, in order: `doc`, `resps`, and its metrics. Zero-shot."""
    with _quiet():
        found = simple_evaluate(model=model, tasks=[task], num_fewshot=0, limit=limit, bootstrap_iters=0)
    logged: Any = found
    (samples,) = logged["samples"].values()
    return sorted(samples, key=lambda sample: sample["doc_id"])


def digest(samples: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 of the questions, the prompts made of them, and the answers wanted."""
    hashes = [[sample[key] for key in ("doc_hash", "prompt_hash", "target_hash")] for sample in samples]
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without lm-eval's remarks on its own defaults."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
