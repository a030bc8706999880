"""What shared prefixes and kept states save: scoring against lm-eval's own model, decoding against reading again.

    python -m benchmarks.scoring            three ratios of CPU seconds; exit code 1 when one is over its limit

Both sides of a ratio run in one process, in turns, on one thread, and the ratio is the median over rounds.
scoring: 200 questions with four options each (contexts of 40 to 120 tokens, options of 3 to 12) on one LLaMA of about
1M parameters with random weights; short: the same with contexts of 20 to 60 tokens, where less is saved. decoding: 128
tokens after a prompt of 2,048 by DeltaNet, against 128 times reading everything that is there so far; of these, eight
are timed and taken sixteen times.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from harness.adapter import Answerer, over
from harness.model import build, shape_of
from harness.tasks import ModelSettings

LIMITS = {"scoring": 0.5, "short": 0.5, "decoding": 0.2}
VOCAB, ROUNDS = 4096, 3


def questions(least: int = 40, most: int = 120, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    """200 contexts of so many tokens with four options each, as (context, option) pairs in random order."""
    draw = random.Random(seed)

    def ids(low: int, high: int) -> list[int]:
        return [draw.randrange(3, VOCAB) for _ in range(draw.randint(low, high))]

    pairs = [(context, ids(3, 12)) for context in (ids(least, most) for _ in range(200)) for _ in range(4)]
    draw.shuffle(pairs)
    return pairs


def seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def scoring(least: int = 40, most: int = 120) -> float:
    """Our time / that of lm-eval's `hf` model, on contexts of so many tokens."""
    from lm_eval.models.huggingface import HFLM
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=344,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    words = Tokenizer(models.WordLevel({str(n): n for n in range(VOCAB)}, unk_token="0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="1", eos_token="2", pad_token="0")
    hf: Any = HFLM  # its registry hides the class from the type checker
    theirs = hf(pretrained=model, tokenizer=tokenizer, batch_size=32, device="cpu")
    ours, pairs = Answerer(over(model), window=2048), questions(least, most)
    asked: Any = [(("", ""), context, option) for context, option in pairs]
    ratios = []
    for _ in range(ROUNDS):
        reference = seconds(lambda: theirs._loglikelihood_tokens(asked, disable_tqdm=True))
        ratios.append(seconds(lambda: ours.score(pairs)) / reference)
    return statistics.median(ratios)


def decoding(prompt: int = 2048, budget: int = 128, timed: int = 8) -> float:
    """Time with a kept state / time of reading everything again for each token."""
    settings = ModelSettings(width=128, layers=2, heads=2, mlp=256)
    model = build(shape_of("delta_net", {}, settings, VOCAB), seed=0).eval()
    ids = [random.Random(0).randrange(VOCAB) for _ in range(prompt + budget)]
    asked = over(model)

    def again() -> None:
        with torch.no_grad():
            for k in range(timed):
                asked.logits(torch.tensor([ids[: prompt + k * budget // timed]]), 1)

    ratios = []
    for _ in range(ROUNDS):
        reference = seconds(again) * budget / timed
        ratios.append(seconds(lambda: Answerer(asked, 4096).generate([ids[:prompt]], budget)) / reference)
    return statistics.median(ratios)


def main() -> int:
    torch.set_num_threads(1)
    found = {"scoring": scoring(), "short": scoring(20, 60), "decoding": decoding()}
    for name, ratio in found.items():
        print(f"{name}: {ratio:.3f} (at most {LIMITS[name]})")
    return int(any(ratio > LIMITS[name] for name, ratio in found.items()))


if __name__ == "__main__":
    sys.exit(main())
