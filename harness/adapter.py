"""Any causal language model as one who answers questions in tokens: what continuations cost, and greedy continuations.

    answerer = Answerer(over(model), window=2048)
    answerer.score([(context, continuation), …])     log p of each continuation, and whether greedy decoding gives it
    answerer.rolling([tokens, …], first)             log p of whole texts, each token once
    answerer.generate([prompt, …], budget, stopped)  the most likely token, again and again

`over` takes a trained run (`harness.model.LM`) or a causal language model of transformers. Questions are lists of token
ids; text, with its beginning-of-text token and its spaces, is `harness.text`'s affair.

Rows of one batch have one length and none is padded. Contexts with several continuations are read once: the state after
their first tokens is copied for each continuation, and the rest is decoded step by step (where a mixer keeps a state,
and where that is less work). How a question is computed depends on that question alone, so that a score does not depend
on the batch size, on the order, or on what else is asked; what is left is how a matrix product rounds, below 1e-5.

What does not fit into the window loses its beginning, never its end: `score` keeps the last `window` + 1 tokens of
context and continuation, `generate` the last `window` - `budget` of the prompt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

Ids = Sequence[int]
TOKENS, SQUARE = 2**13, 2**22  # in one batch on a CPU: tokens, and tokens times length (weights are length × length)
GPU = 16  # times as much


class Score(NamedTuple):
    """Of one continuation: its log-probability in nats, and whether each of its tokens is the most likely one."""

    logp: float
    greedy: bool


class Model(Protocol):
    """What is asked of a model; logits in fp32."""

    device: torch.device
    cached: bool  # whether `step` costs less than reading everything again

    def logits(self, ids_BT: Tensor, last: int) -> Tensor:
        """logits_BLV of the last L positions."""
        ...

    def prefill(self, ids_BT: Tensor) -> tuple[Tensor, Any]:
        """(logits_BV of the last position, state after T tokens)."""
        ...

    def step(self, ids_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(logits_BV, next state); the state that is given may be changed in place."""
        ...

    def select(self, state: Any, rows_R: Tensor) -> Any:
        """The state of these rows, in this order; a row may be taken several times or not at all."""
        ...


class Trained:
    """A run of ours."""

    def __init__(self, model: Any):
        from impls.base import TokenMixer

        self.model = model
        self.device = next(model.parameters()).device
        self.cached = all(type(layer.mixer).step is not TokenMixer.step for layer in model.layers)

    def logits(self, ids_BT: Tensor, last: int) -> Tensor:
        return self.model.head(self.model.hidden(ids_BT)[:, -last:]).float()

    def prefill(self, ids_BT: Tensor) -> tuple[Tensor, Any]:
        logits_B1V, state = self.model.prefill(ids_BT, last=1)
        return logits_B1V[:, 0].float(), state

    def step(self, ids_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits_BV, state = self.model.step(ids_B, state)
        return logits_BV.float(), state

    def select(self, state: Any, rows_R: Tensor) -> Any:
        return _select(state, rows_R)


class Pretrained:
    """A causal language model of transformers; its cache is changed in place."""

    cached = True

    def __init__(self, model: Any):
        self.model = model
        self.device = model.device

    def logits(self, ids_BT: Tensor, last: int) -> Tensor:
        return self.model(ids_BT, use_cache=False, logits_to_keep=last).logits.float()

    def prefill(self, ids_BT: Tensor) -> tuple[Tensor, Any]:
        out = self.model(ids_BT, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1].float(), out.past_key_values

    def step(self, ids_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        out = self.model(ids_B[:, None], use_cache=True, past_key_values=state)
        return out.logits[:, -1].float(), out.past_key_values

    def select(self, state: Any, rows_R: Tensor) -> Any:
        state.batch_select_indices(rows_R)
        return state


def over(model: Any) -> Model:
    """The model as `Answerer` asks it."""
    return Trained(model) if hasattr(model, "hidden") else Pretrained(model)


def _select(state: Any, rows_R: Tensor) -> Any:
    """Rows of every tensor of a state: their first axis is the batch. Numbers and None are the same for all rows."""
    if isinstance(state, Tensor):
        return state[rows_R]
    if isinstance(state, tuple | list):
        parts = [_select(part, rows_R) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    return state


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

    def rows(self, length: int) -> int:
        """Rows of this length in a batch, at least one."""
        return max(1, int(self.scale * min(TOKENS // length, SQUARE // length**2)))

    @torch.no_grad()
    def score(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Score]:
        """A score for each (context, continuation), both of at least one token.

        Raises ValueError when one is empty, or a continuation is longer than the window.
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
            for rows in _chunks(alone[length], self.rows(length)):
                scores |= self._score_whole(rows)
        for prefix in sorted(shared, reverse=True):
            most = max(len(question) for question in shared[prefix])
            for questions in _chunks(shared[prefix], max(1, self.rows(prefix) // most)):
                scores |= self._score_shared(questions, prefix)
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
        Raises ValueError when the budget leaves no room for a prompt in the window.
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
                raise ValueError(
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

        Prefixes are cut to three significant bits, so that many questions have the same one and make a batch.
        """
        context = question[0].first + 1
        prefix = context - context % max(1, 1 << max(0, context.bit_length() - 4))
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

    def _score_shared(self, questions: list[list[_Row]], prefix: int) -> dict[int, Score]:
        """Questions whose rows share their first `prefix` tokens: read once, then each row step by step."""
        logits_BV, state = self.model.prefill(self._tensor([question[0].inputs[:prefix] for question in questions]))
        forks = [(n, row) for n, question in enumerate(questions) for row in question]
        forks.sort(key=lambda fork: -len(fork[1].inputs))  # stable: rows end from the back
        origin_R = self._tensor([n for n, _ in forks])
        rows = [row for _, row in forks]
        logits_BV, state = logits_BV[origin_R], self.model.select(state, origin_R)
        logp: dict[int, list[Tensor]] = defaultdict(list)
        hits: dict[int, list[Tensor]] = defaultdict(list)
        position = prefix - 1
        while True:
            scored = [n for n, row in enumerate(rows) if position >= row.first]
            if scored:
                picked = self._tensor(scored)
                target_R = self._tensor([rows[n].targets[position - rows[n].first] for n in scored])
                scored_RV = logits_BV[picked]
                logp_R = scored_RV.log_softmax(-1).gather(1, target_R[:, None])[:, 0]
                hit_R = scored_RV.argmax(-1) == target_R
                for n, value, hit in zip(scored, logp_R, hit_R, strict=True):
                    logp[rows[n].place].append(value)
                    hits[rows[n].place].append(hit)
            position += 1
            going = sum(len(row.inputs) > position for row in rows)
            if not going:
                break
            if going < len(rows):
                rows, state = rows[:going], self.model.select(state, self._tensor(range(going)))
            logits_BV, state = self.model.step(self._tensor([row.inputs[position] for row in rows]), state)
        return {
            place: Score(float(torch.stack(values).double().sum()), bool(torch.stack(hits[place]).all()))
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


def refuse_budget(budget: int, window: int) -> None:
    """Raises ValueError when a generation of `budget` tokens leaves no room for a prompt."""
    if not 0 < budget < window:
        raise ValueError(f"generates up to {budget} tokens, which leaves no room for a prompt in a window of {window}")


def windows(text: Ids, first: int, window: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(inputs, targets) that predict each token of a text once; inputs end where the targets begin to be known."""
    tokens = (first, *text)
    for start in range(0, len(text), window):
        stop = min(start + window, len(text))
        yield tokens[max(0, stop - window) : stop], tokens[start + 1 : stop + 1]


def _score(logits_LV: Tensor, target_L: Tensor) -> Score:
    logp_L = logits_LV.log_softmax(-1).gather(1, target_L[:, None])[:, 0]
    return Score(float(logp_L.double().sum()), bool((logits_LV.argmax(-1) == target_L).all()))


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
