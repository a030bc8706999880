"""RULER's tasks as we make them against those that lm-eval makes, drawn side by side at 4,096 tokens.

lm-eval's generators are run as they are, on words for tokens; but nltk downloads no model of sentences, and keys are
made of 200 nouns and adjectives each, as all pairs of all of them take half a minute.
They fill a length in strides of up to 25 units, so that theirs are a stride shorter than ours at most, and `fwe` is
over its length by the answer (as of lm-eval 0.4.13). What has to agree is what a task asks: how many needles, how deep,
how often each word.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import ks_2samp

from harness.ruler import needles
from harness.ruler.tasks import build
from tests.ruler_texts import small

LENGTH, COUNT = 4096, 60
FACT = re.compile(r"One of the special magic (?:numbers|uuids) for (.+?) is: (\S+)\.")  # a word may be two
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ASSIGNED = re.compile(r"VAR [A-Z]{5} = (?:VAR [A-Z]{5}|\d{5})")


tokens: Any = lambda text: SimpleNamespace(input_ids=text.split())  # noqa: E731


@pytest.fixture(scope="module")
def theirs():
    """A function from a task to lm-eval's samples, as (prompt with its prefix, references)."""
    nltk = pytest.importorskip("nltk")
    wonderwords = pytest.importorskip("wonderwords")
    from lm_eval.tasks.ruler import cwe_utils, fwe_utils, vt_utils

    few = {kind: listed[:200] for kind, listed in wonderwords.RandomWord()._categories.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nltk.data, "find", lambda name: name)
        patch.setattr(wonderwords, "RandomWord", lambda: SimpleNamespace(_categories=few))
        from lm_eval.tasks.ruler import niah_utils, prepare_niah
    essay = list(small().words) * (1 + LENGTH // len(small().words))

    def niah(task: str):
        kind = needles.KINDS[task]
        hay = essay if kind.haystack == "essay" else prepare_niah.get_haystack(kind.haystack)
        return prepare_niah.generate_samples(
            hay,
            TOKENIZER=tokens,
            max_seq_length=LENGTH,
            type_haystack=kind.haystack,
            type_needle_k=kind.keys,
            type_needle_v=kind.values,
            template=niah_utils.TEMPLATE,
            num_samples=COUNT,
            num_needle_k=kind.needles,
            num_needle_v=kind.each,
            num_needle_q=kind.asked,
        )

    def made(task: str) -> list[tuple[str, list[str]]]:
        random.seed(task)  # the two that they draw from
        np.random.seed(0)
        if task in needles.KINDS:
            found = niah(task)
        elif task == "vt":
            solved = vt_utils.sys_vartrack_w_noise_random(tokens, 1, 500, incremental=5)[0]
            found = vt_utils.sys_vartrack_w_noise_random(tokens, 20, LENGTH, icl_example=solved)
        elif task == "cwe":
            found = cwe_utils.sys_word_pair_random(5, LENGTH, tokens)
        else:
            found = fwe_utils.sys_kwext(tokens, LENGTH, 5)
        return [
            (f"{each.get('input_example', '')} {each['input']} {each['gen_prefix']}", each["outputs"]) for each in found
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare_niah, "cached_sent_tokenize", needles.SENTENCE.split)
        yield made


def ours(task: str, count: int = COUNT) -> list[tuple[str, list[str]]]:
    return [
        (sample.prompt, list(sample.outputs))
        for sample in build(task, LENGTH, count, 0, lambda text: range(len(text.split())), small())
    ]


def facts(prompt: str) -> list[tuple[str, str]]:
    return FACT.findall(prompt)


def depth(prompt: str, output: str) -> float:
    """Where the fact stands in the haystack, by words."""
    hay = prompt.partition("\n")[2].rpartition("\nWhat ")[0]
    return len(hay[: hay.index(f"is: {output}.")].split()) / len(hay.split())


@pytest.mark.parametrize("task", needles.KINDS)
def test_needles_and_their_depths_are_as_lm_eval_draws_them(theirs, task: str):
    mine, reference = ours(task), theirs(task)
    stride = 25 if needles.KINDS[task].haystack == "needle" else 0
    least, most = (min(len(facts(p)) for p, _ in reference), max(len(facts(p)) for p, _ in reference))
    assert all(least <= len(facts(prompt)) <= most + stride for prompt, _ in mine)
    assert {len(outputs) for _, outputs in mine} == {len(outputs) for _, outputs in reference}
    assert {shape(*each) for each in mine} == {shape(*each) for each in reference}
    deep, wanted = ([depth(p, out) for p, outputs in made for out in outputs] for made in (mine, reference))
    result: Any = ks_2samp(np.array(deep), np.array(wanted))
    assert result.statistic < 0.3, "the distributions of 60 depths or more"


def shape(prompt: str, outputs: list[str]) -> tuple[bool, str, int]:
    """Whether keys are UUIDs, how values are written, and how many values a key has."""
    asked = [(key, value) for key, value in facts(prompt) if value in outputs]
    each = Counter(key for key, _ in asked)
    return bool(UUID.fullmatch(asked[0][0])), re.sub(r"[a-f0-9]", "x", asked[0][1]), max(each.values())


def test_chains_and_counts_are_as_lm_eval_draws_them(theirs):
    for task, per in (("vt", chain), ("cwe", listed), ("fwe", coded)):
        mine, reference = ours(task, 5), theirs(task)
        assert {len(outputs) for _, outputs in mine} == {len(outputs) for _, outputs in reference}
        wanted = {per(prompt, outputs) for prompt, outputs in reference}
        assert {per(prompt, outputs) for prompt, outputs in mine} == wanted, task


def chain(prompt: str, outputs: list[str]) -> tuple[int, bool]:
    """(assignments after the solved example, whether noise lies between them)."""
    text = prompt.rpartition("Memorize and track")[2].partition("Question:")[0]
    found = ASSIGNED.findall(text)
    return len(found), text.count("The grass is green.") > 50


def listed(prompt: str, outputs: list[str]) -> tuple[tuple[int, ...], int, tuple[tuple[int, int], ...]]:
    """How often words of the list stand there, those asked for and most others; and of the solved example.

    Two of lm-eval's words may differ in a space at an end only, and are then one here.
    """
    parts = [
        Counter(re.findall(r"\d+\. (\w+)", part.partition("Question")[0])) for part in prompt.split("Below is")[1:]
    ]
    asked = {count for word, count in parts[-1].items() if word in outputs}
    others = Counter(count for word, count in parts[-1].items() if word not in outputs)
    return tuple(sorted(asked)), others.most_common(1)[0][0], tuple(sorted(Counter(parts[0].values()).items()))


def coded(prompt: str, outputs: list[str]) -> tuple[int, ...]:
    """Ranks 2 to 4 over rank 1, the dots, in percent; they are asked for, in turn."""
    text = prompt.partition("coded words. ")[2].partition("\nQuestion")[0]
    ranked = Counter(text.split()).most_common(4)
    assert ranked[0][0] == "..."
    assert [word for word, _ in ranked[1:]] == outputs
    return tuple(round(100 * count / ranked[0][1]) for _, count in ranked[1:])
