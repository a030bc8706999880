"""Any causal language model as one who answers questions in tokens: what continuations cost, and greedy continuations.

    answerer = Answerer(over(model), window=2048)
    answerer.score([(context, continuation), …])     log p of each continuation, and whether greedy decoding gives it
    answerer.rolling([tokens, …], first)             log p of whole texts, each token once
    answerer.generate([prompt, …], budget, stopped)  the most likely token, again and again

`over` takes a trained run (`harness.model.LM`) or a causal language model of transformers. Questions are lists of token
ids; text, with its beginning-of-text token and its spaces, is `harness.text`'s affair.

Prompts of one batch have one length and none is padded. A context with several continuations is read once: the state
after its first tokens is copied for each continuation, which goes on from there, where a mixer keeps a state and where
that is less work. How a question is computed depends on that question alone, so that a score does not depend on the
batch size, on the order, or on what else is asked; what is left is how a matrix product rounds.

What does not fit into the window loses its beginning, never its end: `score` keeps the last `window` + 1 tokens of
context and continuation, `generate` the last `window` - `budget` of the prompt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harness.backends import Model, judge, over
from harness.room import Misfit, refuse_budget

__all__ = ["Answerer", "Misfit", "Score", "over"]

Ids = Sequence[int]
TOKENS, SQUARE = 2**13, 2**22  # in one batch on a CPU: tokens, and tokens times length (weights are length × length)
LOGITS = 2**25  # numbers, likewise
FORKS, LEAST = 64, 32  # continuations read in one go, likewise; those of one go are of nearly one length
GPU = 16  # times as much


class Score(NamedTuple):
    """Of one continuation: its log-probability in nats, and whether each of its tokens is the most likely one."""

    logp: float
    greedy: bool


class _Row(NamedTuple):
    """One continuation as a row of tokens: the model reads `inputs`, and `targets` follow its last positions."""

    place: int  # in what was asked
    inputs: tuple[int, ...]
    targets: tuple[int, ...]

    @property
    def first(self) -> int:
        """The position that predicts the first target."""
        return len(self.inputs) - len(self.targets)


class Answerer:
    """Answers questions with one model; see the top of the file. `window`: the most tokens it reads."""

    def __init__(self, model: Model, window: int, scale: float | None = None):
        self.model, self.window = model, window
        self.scale = scale or (GPU if model.device.type == "cuda" else 1)  # of a batch

    def rows(self, length: int, last: int = 1) -> int:
        """Rows of this length in a batch, at least one, where logits of the `last` positions are wanted."""
        most = min(TOKENS // length, SQUARE // length**2, LOGITS // (last * self.model.vocab))
        return max(1, int(self.scale * most))

    @torch.no_grad()
    def score(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Score]:
        """A score for each (context, continuation), both of at least one token.

        Raises ValueError when one is empty, Misfit when a continuation is longer than the window.
        """
        alone: dict[int, list[_Row]] = defaultdict(list)
        shared: dict[int, list[list[_Row]]] = defaultdict(list)
        for question in self._questions(pairs):
            prefix = self._prefix(question)
            if prefix:
                shared[prefix].append(question)
            else:
                for row in question:
                    alone[len(row.inputs)].append(row)
        scores: dict[int, Score] = {}
        for length in sorted(alone, reverse=True):  # the largest first: a lack of memory shows at once
            most = max(len(row.targets) for row in alone[length])
            for rows in _chunks(alone[length], self.rows(length, most)):
                scores |= self._score_whole(rows)
        score = self._score_extended if self.model.extends else self._score_stepwise
        for prefix in sorted(shared, reverse=True):
            most = max(len(question) for question in shared[prefix])
            for questions in _chunks(shared[prefix], max(1, self.rows(prefix) // most)):
                scores |= score(questions, prefix)
        return [scores[place] for place in range(len(pairs))]

    def rolling(self, texts: Sequence[Ids], first: int) -> list[float]:
        """log p of each text, whose first token is predicted from the token `first`.

        Each token is predicted once, in windows with as much context as fits: the first window predicts `window` tokens
        and each later one the next `window`, or at the end what is left, with the tokens before it as its context.
        """
        pairs, owners = [], []
        for owner, text in enumerate(texts):
            for inputs, targets in windows(text, first, self.window):
                pairs.append((inputs[: len(inputs) - len(targets) + 1], targets))
                owners.append(owner)
        totals = [0.0] * len(texts)
        for owner, score in zip(owners, self.score(pairs), strict=True):
            totals[owner] += score.logp
        return totals

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[Ids], budget: int, stopped: Callable[[list[int]], bool] = lambda tokens: False
    ) -> list[list[int]]:
        """At most `budget` tokens after each prompt, each the most likely one (of equals, the first in the vocabulary).

        A row ends after the token at which `stopped(its tokens so far)` is true; that token is kept.
        Raises Misfit when the budget leaves no room for a prompt in the window.
        """
        refuse_budget(budget, self.window)
        by_length: dict[int, list[int]] = defaultdict(list)
        kept = [tuple(prompt[-(self.window - budget) :]) for prompt in prompts]
        for place, prompt in enumerate(kept):
            if not prompt:
                raise ValueError(f"prompt {place} has no token to start from")
            by_length[len(prompt)].append(place)
        found: dict[int, list[int]] = {}
        for length in sorted(by_length, reverse=True):
            for places in _chunks(by_length[length], self.rows(length + budget)):
                found |= zip(places, self._decode([kept[place] for place in places], budget, stopped), strict=True)
        return [found[place] for place in range(len(prompts))]

    def _questions(self, pairs: Sequence[tuple[Ids, Ids]]) -> Iterator[list[_Row]]:
        """The rows of each context that fits; a context that is cut makes each of its rows a question of its own."""
        by_context: dict[tuple[int, ...], list[_Row]] = defaultdict(list)
        for place, (context, continuation) in enumerate(pairs):
            if not context or not continuation:
                what = "continuation" if context else "context"
                raise ValueError(f"question {place}: its {what} has no token, so there is nothing to score")
            if len(continuation) > self.window:
                raise Misfit(
                    f"question {place}: a continuation of {len(continuation)} tokens does not fit into {self.window}"
                )
            whole = (*context, *continuation)[-(self.window + 1) :]
            row = _Row(place, tuple(whole[:-1]), tuple(continuation))
            if len(row.inputs) < len(context) + len(continuation) - 1:
                yield [row]
            else:
                by_context[tuple(context)].append(row)
        yield from by_context.values()

    def _prefix(self, question: list[_Row]) -> int:
        """How many tokens to read for all rows at once; 0 where each row is better read by itself.

        Prefixes are cut to a multiple of four, longer ones to five significant bits, so that many questions have the
        same one and make a batch.
        """
        context = question[0].first + 1
        prefix = context - context % max(4, 1 << max(0, context.bit_length() - 5))
        rest = max(len(row.inputs) for row in question) - prefix
        return prefix if self.model.cached and len(question) > 1 and rest <= prefix else 0

    def _tensor(self, ids: Sequence[Any]) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=self.model.device)

    def _score_whole(self, rows: list[_Row]) -> dict[int, Score]:
        """Rows of one length, each read from its start."""
        logits_BLV = self.model.logits(self._tensor([row.inputs for row in rows]), max(len(r.targets) for r in rows))
        return {
            row.place: _score(logits_LV[-len(row.targets) :], self._tensor(row.targets))
            for row, logits_LV in zip(rows, logits_BLV, strict=True)
        }

    def _read(self, questions: list[list[_Row]], prefix: int) -> tuple[list[_Row], Tensor, Tensor, Any]:
        """(rows, the question of each, logits_BV after the first `prefix` tokens, state), longest rows first."""
        logits_BV, state = self.model.prefill(self._tensor([question[0].inputs[:prefix] for question in questions]))
        forks = [(n, row) for n, question in enumerate(questions) for row in question]
        forks.sort(key=lambda fork: -len(fork[1].inputs))
        return [row for _, row in forks], self._tensor([n for n, _ in forks]), logits_BV, state

    def _score_extended(self, questions: list[list[_Row]], prefix: int) -> dict[int, Score]:
        """Rows that share their first `prefix` tokens within a question, read on in groups of nearly one length.

        A shorter row is filled at its end, where a causal model cannot look back from.
        """
        rows, origin_R, before_BV, state = self._read(questions, prefix)
        scores: dict[int, Score] = {}
        for places in _even([len(row.inputs) - prefix for row in rows], int(FORKS * max(1, self.scale))):
            group, from_R = rows[places.start : places.stop], origin_R[places.start : places.stop]
            at = [(n, row.first - prefix + k) for n, row in enumerate(group) for k in range(len(row.targets))]
            row_L, position_L = self._tensor(at).T
            length, first_L = len(group[0].inputs) - prefix, position_L < 0
            if length:
                rest = [(*row.inputs[prefix:], *[0] * (length - len(row.inputs) + prefix)) for row in group]
                more_RTV = self.model.extend(self._tensor(rest), self.model.select(state, from_R))
                kept_LV = more_RTV[row_L, position_L]
                kept_LV[first_L] = before_BV[from_R[row_L[first_L]]]
            else:
                kept_LV = before_BV[from_R[row_L]]
            logp_L, hit_L = judge(kept_LV, self._tensor([token for row in group for token in row.targets]))
            sizes = [len(row.targets) for row in group]
            for row, logp, hit in zip(group, logp_L.split(sizes), hit_L.split(sizes), strict=True):
                scores[row.place] = Score(float(logp.sum()), bool(hit.all()))
        return scores

    def _score_stepwise(self, questions: list[list[_Row]], prefix: int) -> dict[int, Score]:
        """The same, token by token, without the rows that have come to their end."""
        rows, origin_R, logits_BV, state = self._read(questions, prefix)
        logits_RV, state = logits_BV[origin_R], self.model.select(state, origin_R)
        logp: dict[int, list[Tensor]] = defaultdict(list)
        hits: dict[int, list[Tensor]] = defaultdict(list)
        for position in range(prefix - 1, len(rows[0].inputs)):
            if position >= prefix:
                going = sum(len(row.inputs) > position for row in rows)
                if going < len(rows):
                    rows, state = rows[:going], self.model.select(state, self._tensor(range(going)))
                logits_RV, state = self.model.step(self._tensor([row.inputs[position] for row in rows]), state)
            scored = [n for n, row in enumerate(rows) if position >= row.first]
            if scored:
                target_R = self._tensor([rows[n].targets[position - rows[n].first] for n in scored])
                logp_R, hit_R = judge(logits_RV[self._tensor(scored)], target_R)
                for n, value, hit in zip(scored, logp_R, hit_R, strict=True):
                    logp[rows[n].place].append(value)
                    hits[rows[n].place].append(hit)
        return {
            place: Score(float(torch.stack(values).sum()), bool(torch.stack(hits[place]).all()))
            for place, values in logp.items()
        }

    def _decode(
        self, prompts: list[tuple[int, ...]], budget: int, stopped: Callable[[list[int]], bool]
    ) -> list[list[int]]:
        """Prompts of one length."""
        tokens: list[list[int]] = [[] for _ in prompts]
        going = list(range(len(prompts)))
        logits_BV, state = self.model.prefill(self._tensor(prompts))
        while True:
            next_B = logits_BV.argmax(-1)
            for place, token in zip(going, next_B.tolist(), strict=True):
                tokens[place].append(token)
            kept = [n for n, place in enumerate(going) if len(tokens[place]) < budget and not stopped(tokens[place])]
            if not kept:
                return tokens
            if len(kept) < len(going):
                kept_R = self._tensor(kept)
                going, next_B, state = [going[n] for n in kept], next_B[kept_R], self.model.select(state, kept_R)
            logits_BV, state = self.model.step(next_B, state)


def windows(text: Ids, first: int, window: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(inputs, targets) that predict each token of a text once; inputs end where the targets begin to be known."""
    tokens = (first, *text)
    for start in range(0, len(text), window):
        stop = min(start + window, len(text))
        yield tokens[max(0, stop - window) : stop], tokens[start + 1 : stop + 1]


def _score(logits_LV: Tensor, target_L: Tensor) -> Score:
    logp_L, hit_L = judge(logits_LV, target_L)
    return Score(float(logp_L.sum()), bool(hit_L.all()))


def _even(lengths: list[int], size: int) -> Iterator[range]:
    """Places of falling lengths in groups of at most `size`, a new one where a third or more would be filled up."""
    first = 0
    for place, length in enumerate([*lengths, -1]):
        full = place - first >= size or (place - first >= LEAST and 3 * length <= 2 * lengths[first])
        if place > first and (full or length < 0):
            yield range(first, place)
            first = place


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
