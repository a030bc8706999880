"""Scores and generations of `harness.adapter` against the plain way: one row at a time, everything read again."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

import impls
from harness.adapter import Answerer, Misfit, over
from harness.backends import Trained
from harness.model import LM, build, shape_of
from harness.tasks import ModelSettings
from impls.base import TokenMixer

VOCAB, WINDOW = 50, 40
MIXERS = ["softmax", "delta_net", "gla", "mta"]


def model(impl: str, width: int = 16) -> LM:
    settings = ModelSettings(width=width, layers=2, heads=2, mlp=24)
    return build(shape_of(impl, {}, settings, VOCAB), seed=0).eval()


def llama():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=WINDOW,
        initializer_range=0.5,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module", params=[*MIXERS, "llama"])
def any_model(request):
    return llama() if request.param == "llama" else model(request.param)


def logits(any_model, ids: list[int]) -> Tensor:
    with torch.no_grad():
        out = any_model(torch.tensor([ids]))
    return (out if isinstance(out, Tensor) else out.logits)[0]


def questions(seed: int = 0) -> list[tuple[list[int], list[int]]]:
    """Contexts with several options, lone ones, one beyond the window, one of a single token."""
    draw = random.Random(seed)

    def ids(n: int) -> list[int]:
        return [draw.randrange(VOCAB) for _ in range(n)]

    shared = [
        (context, ids(draw.randint(1, 6))) for context in (ids(draw.randint(9, 20)) for _ in range(6)) for _ in "abcd"
    ]
    return [*shared, (ids(5), ids(7)), (ids(60), ids(4)), (ids(1), ids(1)), (ids(30), ids(40))]


def plain(any_model, context: list[int], continuation: list[int]) -> tuple[float, bool]:
    ids = (context + continuation)[-(WINDOW + 1) :]
    logp_LV = logits(any_model, ids[:-1]).double().log_softmax(-1)[-len(continuation) :]
    target_L = torch.tensor(continuation)
    return logp_LV.gather(1, target_L[:, None]).sum().item(), bool((logp_LV.argmax(-1) == target_L).all())


def test_scores_are_those_of_each_row_by_itself(any_model):
    pairs = questions()
    for pair, score in zip(pairs, Answerer(over(any_model), WINDOW).score(pairs), strict=True):
        logp, greedy = plain(any_model, *pair)
        assert score.logp == pytest.approx(logp, abs=2e-4)
        assert score.greedy == greedy


def test_greedy_continuations_are_known_as_such(any_model):
    answerer = Answerer(over(any_model), WINDOW)
    prompts = [context for context, _ in questions()[:8:4]]
    written = answerer.generate(prompts, 5)
    others = [[*tokens[:-1], (tokens[-1] + 1) % VOCAB] for tokens in written]
    pairs = [(prompt, tokens) for n, prompt in enumerate(prompts) for tokens in (written[n], others[n])]
    assert [score.greedy for score in answerer.score(pairs)] == [True, False] * len(prompts)


def test_scores_do_not_depend_on_batch_order_or_what_else_is_asked(any_model):
    pairs = questions()
    whole = Answerer(over(any_model), WINDOW).score(pairs)
    small = Answerer(over(any_model), WINDOW, scale=1e-6)
    order = random.Random(1).sample(range(len(pairs)), len(pairs))
    again = small.score([pairs[n] for n in order])
    few = Answerer(over(any_model), WINDOW).score([*questions(9), *pairs[:4]])[-4:]
    for n, score in [*zip(order, again, strict=True), *enumerate(few)]:
        assert score.logp == pytest.approx(whole[n].logp, abs=5e-5)
        assert score.greedy == whole[n].greedy


def test_generation_is_the_argmax_of_everything_read_again(any_model):
    prompts = [context for context, _ in questions()[::4]] + [[3] * 50]
    stop = Answerer(over(any_model), WINDOW).generate(prompts[:1], 6)[0][2]
    found = Answerer(over(any_model), WINDOW).generate(prompts, 6, lambda tokens: tokens[-1] == stop)
    for prompt, tokens in zip(prompts, found, strict=True):
        ids, wanted = prompt[-(WINDOW - 6) :], []
        while len(wanted) < 6 and stop not in wanted:
            wanted.append(int(logits(any_model, ids + wanted)[-1].argmax()))
        assert tokens == wanted


def test_whole_texts_are_scored_in_windows_each_token_once(any_model):
    draw = random.Random(3)
    for length in (1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 7):
        text = [draw.randrange(VOCAB) for _ in range(length)]
        whole, total = [0, *text], 0.0
        for start in range(0, length, WINDOW):
            stop = min(start + WINDOW, length)
            inputs = whole[max(0, stop - WINDOW) : stop]
            logp_TV = logits(any_model, inputs).double().log_softmax(-1)[-(stop - start) :]
            total += logp_TV.gather(1, torch.tensor(whole[start + 1 : stop + 1])[:, None]).sum().item()
        assert Answerer(over(any_model), WINDOW).rolling([text], 0) == pytest.approx([total], abs=1e-3)


def test_what_cannot_be_asked_is_refused(any_model):
    answerer = Answerer(over(any_model), WINDOW)
    with pytest.raises(Misfit, match=f"writes up to {WINDOW} tokens, which leaves no room"):
        answerer.generate([[1, 2]], WINDOW)
    with pytest.raises(Misfit, match="a continuation of 41 tokens does not fit into 40"):
        answerer.score([([1], [2] * 41)])
    for pair in (([1], []), ([], [1])):
        with pytest.raises(ValueError, match="has no token"):
            answerer.score([pair])


def test_a_model_without_an_opinion_hits_nothing():
    flat = model("softmax")
    torch.nn.init.zeros_(flat.embedding.weight)
    scores = Answerer(over(flat), WINDOW).score([([1, 2, 3], [token]) for token in range(VOCAB)])
    assert sum(score.greedy for score in scores) == 1  # of equals the first, so 1/V of all continuations


def test_a_context_is_read_once_for_all_its_options(monkeypatch):
    read = []
    original = Trained.prefill
    monkeypatch.setattr(Trained, "prefill", lambda self, ids: read.append(tuple(ids.shape)) or original(self, ids))
    Answerer(over(model("delta_net")), WINDOW).score([([*range(20)], [token]) for token in range(4)])
    assert read == [(1, 20)]


@pytest.mark.parametrize("impl", impls.names())
def test_the_state_of_every_mechanism_forks(impl):
    """A row of a state taken twice goes on as a row that was read twice."""
    built = model(impl, width=32)
    if any(type(layer.mixer).step is TokenMixer.step for layer in built.layers):  # its state is the prefix
        assert not over(built).cached
    ids_BT, next_R = torch.randint(VOCAB, (2, 9), generator=torch.Generator().manual_seed(0)), torch.tensor([4, 7, 1])
    rows_R = torch.tensor([1, 0, 1])
    asked = over(built)
    with torch.no_grad():
        forked_RV, _ = asked.step(next_R, asked.select(asked.prefill(ids_BT)[1], rows_R))
        plain_RV, _ = asked.step(next_R, asked.prefill(ids_BT[rows_R])[1])
    torch.testing.assert_close(forked_RV, plain_RV, atol=1e-4, rtol=1e-4)
