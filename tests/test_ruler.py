"""RULER's tasks as text: exact lengths, equal bytes in any order, one answer, RULER's scores and RULER's mix."""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections import Counter
from dataclasses import replace

import pytest

from harness.errors import UserError
from harness.ruler import TASKS, frequency, material, needles, questions, score, store, variables
from harness.ruler.fill import Draft, Encode, Sample, TooShort, fill
from harness.ruler.tasks import BUDGETS, build
from tests.conftest import SHARED
from tests.ruler_texts import ENCODERS, articles, small, words

LENGTHS = (128, 256, 512, 1024, 4096)
FACT = re.compile(r"One of the special magic (?:numbers|uuids) for (\S+) is: (\S+)\.")
FILES = SHARED / "hub" / "ruler"


def samples(task: str, length: int = 1024, count: int = 8, seed: int = 0, encode=words):
    return build(task, length, count, seed, encode, small())


def attempt(task: str, length: int, count: int, encode: Encode) -> tuple[list[Sample], TooShort | None]:
    try:
        return build(task, length, count, 0, encode, small()), None
    except TooShort as error:
        return [], error


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("task", TASKS)
def test_prompt_prefix_and_budget_fit_the_length_or_it_is_refused_within_a_second(task: str, name: str):
    encode, made = ENCODERS[name], 0
    for length in LENGTHS:
        start = time.process_time()
        found, refused = attempt(task, length, 4, encode)
        if refused is not None:
            assert time.process_time() - start < 1
            assert re.search(rf"{length} tokens cannot hold {task}: it needs at least \d+ tokens", str(refused))
            assert (refused.smallest or 0) > length
            continue
        made += 1
        assert len(found) == 4
        for sample in found:
            assert len(encode(sample.prompt)) == sample.tokens
            assert sample.slack(length) >= 0
            assert sample.budget >= min(BUDGETS[task], length // 4)
    assert made >= 1


@pytest.mark.parametrize("task", TASKS)
def test_one_more_unit_of_filler_would_not_fit(task: str):
    for sample in samples(task):
        unit = 200 if task.startswith("qa") else 25  # words of an article, of a line of noise
        assert sample.slack(1024) <= unit


def test_the_refusal_names_a_length_that_does_hold_the_sample():
    with pytest.raises(TooShort) as caught:
        build("niah_multiquery", 128, 1, 0, words, small())
    assert caught.value.smallest is not None
    assert build("niah_multiquery", caught.value.smallest + 4, 1, 0, words, small())
    with pytest.raises(TooShort, match="no task is made below 128"):
        build("niah_single_1", 64, 1, 0, words, small())


def test_filling_ends_whatever_the_tokenizer_does():
    rng = random.Random(0)
    calls = []

    def erratic(text: str) -> list[int]:
        calls.append(text)
        return [0] * rng.randrange(1, 400)

    draft = Draft(lambda n: ("x " * n, ()), ("x",), least=0, most=10**9, answer="x")
    with contextlib.suppress(TooShort):
        fill(draft, 256, 16, erratic)
    assert len(calls) < 60


@pytest.mark.parametrize("task", TASKS)
def test_samples_depend_on_task_length_seed_and_place_alone(task: str):
    first = samples(task, count=5)
    random.seed(7)
    samples("niah_multikey_2", 512, 3, 9)
    samples(task, 2048, 2)
    assert samples(task, count=5) == first
    assert samples(task, count=3) == first[:3], "more samples do not change the first ones"
    assert samples(task, count=5, seed=1) != first
    assert len({sample.prompt for sample in first}) == 5


@pytest.mark.parametrize("task", needles.KINDS)
def test_each_key_of_a_needle_task_has_one_answer(task: str):
    kind = needles.KINDS[task]
    for sample in samples(task, 4096, 10):
        text, _, question = sample.prompt.rpartition("\nWhat ")
        facts = FACT.findall(text)
        keys = [key for key, _ in facts]
        values = {value: key for key, value in facts}
        assert len(values) == len(facts), "no value twice"
        assert max(Counter(keys).values()) == kind.each, "keys differ by construction"
        asked = {values[output] for output in sample.outputs}
        assert len(asked) == kind.asked
        assert all(key in question for key in asked)
        assert {value for value, key in values.items() if key in asked} == set(sample.outputs)
        many = kind.each * kind.asked > 1
        assert sample.prompt.endswith(" mentioned in the provided text " + ("are" if many else "is"))


def test_keys_differ_even_where_words_are_few(monkeypatch):
    few = [f"word-{n}" for n in range(450)]
    monkeypatch.setitem(needles.MAKERS, "words", lambda rng: rng.choice(few))
    (sample,) = samples("niah_multikey_2", 4096, 1)
    keys = [key for key, _ in FACT.findall(sample.prompt)]
    assert len(set(keys)) == len(keys) > 250


def test_a_haystack_is_running_text_with_facts_between_its_sentences():
    text = " ".join(small().words)
    for sample in samples("niah_multiquery", 2048, 4):
        hay = sample.prompt.partition("\n")[2].rpartition("\nWhat ")[0]
        parts = [part.strip() for part in FACT.split(hay)[::3] if part.strip()]
        assert " ".join(parts) in text + " " + text
        assert all(part.endswith(".") for part in parts[:-1])


def test_a_depth_is_where_the_fact_lies():
    for task in ("niah_single_1", "niah_single_2", "niah_multikey_2", "niah_multivalue"):
        for sample in samples(task, 4096, 10):
            text = sample.prompt.partition("\n")[2].rpartition("\nWhat ")[0]
            for output, depth in zip(sample.outputs, sample.depths, strict=True):
                assert text.index(f"is: {output}.") / len(text) == pytest.approx(depth, abs=0.06)


def test_needles_depths_and_counts_are_those_of_lm_eval():
    """Numbers of lm_eval/tasks/ruler 0.4.13: prepare_niah.py (DEPTHS: 40 even percentages, drawn without replacement),
    niah_utils.py (num_needle_k, num_needle_v, num_needle_q), vt_utils.py (num_chains=1, num_hops=4), cwe_utils.py
    (freq_cw=30, freq_ucw=3, num_cw=10; example 40 words, 10 and 3 times), fwe_utils.py (vocab_size=length // 50,
    alpha=2, answers vocab[1:4]), and the max_gen_toks of the tasks' YAML files."""
    found = {task: [len(FACT.findall(sample.prompt)) for sample in samples(task, 4096, 4)] for task in needles.KINDS}
    counts = {"single_1": 1, "single_2": 1, "single_3": 1, "multikey_1": 4, "multivalue": 4, "multiquery": 4}
    assert {task: set(found[f"niah_{task}"]) for task in counts} == {task: {count} for task, count in counts.items()}
    assert all(count > 100 for task in ("niah_multikey_2", "niah_multikey_3") for count in found[task])
    depths = [sample.depths[0] for sample in samples("niah_single_1", 256, 400)]
    assert {round(100 * depth) for depth in depths} == {round(100 * n / 39) for n in range(40)}
    assert max(Counter(depths).values()) < 3 * 400 / 40
    (sample,) = samples("cwe", 4096, 1)
    _, example, text = sample.prompt.split("Below is a numbered list of words.")
    entries = Counter(Counter(re.findall(r"\d+\. (\w+)", text.partition("\nQuestion")[0])).values())
    assert set(entries) == {30, 3}
    assert entries[30] == 10
    shown = Counter(Counter(re.findall(r"\d+\. (\w+)", example.partition("\nQuestion")[0])).values())
    assert shown == {10: 10, 3: 30}
    (sample,) = samples("fwe", 4096, 1)
    coded = Counter(re.findall(r"[a-z]{6}|\.\.\.", sample.prompt.partition("coded words. ")[2].partition("\nQ")[0]))
    total = coded.most_common(1)[0][1] * frequency.ZETA_2
    assert [word for word, _ in coded.most_common(4)[1:]] == list(sample.outputs)
    for rank, (_, count) in enumerate(coded.most_common(8), start=1):
        assert count == pytest.approx(total / (frequency.ZETA_2 * rank**2), abs=1.01)
    (sample,) = samples("vt", 4096, 1)
    assert len(sample.outputs) == 5
    others = {"vt": 30, "cwe": 120, "fwe": 50, "qa_1": 32, "qa_2": 32}
    assert dict.fromkeys(needles.KINDS, 128) | others == BUDGETS
    assert all(s.budget == BUDGETS[task] for task in TASKS for s in samples(task, 4096, 1))


def test_a_chain_of_variables_leads_to_its_value_and_nothing_else_does():
    for sample in samples("vt", 1024, 10):
        asked = sample.prompt.rpartition("Question: ")[2]
        (value,) = set(re.findall(r"the value (\d+)", asked))
        text = sample.prompt.rpartition("Memorize and track")[2]
        holds = [name for name, number in re.findall(r"VAR (\w+) = (\d+)", text) if number == value]
        for name, source in re.findall(r"VAR (\w+) = VAR (\w+)", text):
            if source in holds:
                holds.append(name)
        assert holds == list(sample.outputs)
        assert sample.prompt.endswith("they are:")


def test_the_words_asked_for_are_the_most_frequent():
    for sample in samples("cwe", 2048, 4):
        text = sample.prompt.rpartition("Below is")[2].partition("\nQuestion")[0]
        ranked = Counter(re.findall(r"\d+\. (\w+)", text)).most_common()
        assert {word for word, _ in ranked[:10]} == set(sample.outputs)
        assert (ranked[9][1], ranked[10][1]) == (6, 1)
    for length in (256, 300, 512, 1024):
        for sample in samples("fwe", length, 4):
            text = sample.prompt.partition("coded words. ")[2].partition("\nQuestion")[0]
            ranked = Counter(text.split()).most_common()
            assert ranked[0][0] == "..."
            assert [word for word, _ in ranked[1:4]] == list(sample.outputs)
            assert ranked[3][1] > ranked[4][1] if len(ranked) > 4 else True


def test_questions_of_articles_have_their_documents_and_no_other_answer():
    for task in ("qa_1", "qa_2"):
        for sample in samples(task, 1024, 20):
            asked = re.findall(r"'([^']+)'", sample.prompt.rpartition("Question: ")[2])
            own = [article for article in articles() if article.description in asked]
            assert len(own) == len(asked)
            first = min((article.title for article in own), key=str.casefold)
            assert sample.outputs == questions._names(first)
            numbers = re.findall(r"^Document (\d+):$", sample.prompt, re.MULTILINE)
            assert numbers == [str(n + 1) for n in range(len(numbers))]
            for article in own:
                assert sample.prompt.count(f"{article.title}\n{article.text}") == 1
    assert questions._names("Mercury (planet)") == ("Mercury (planet)", "Mercury")


def test_a_corpus_without_descriptions_has_no_questions():
    bare = material.gather(lambda: [article._replace(description="") for article in articles()], "bare")
    with pytest.raises(UserError, match=r"qa_1 has no questions.*SQuAD"):
        build("qa_1", 1024, 1, 0, words, bare)


@pytest.mark.skipif(not FILES.is_dir(), reason=f"no question sets at {FILES}")
def test_questions_come_from_squad_and_hotpotqa_files():
    given = material.gather(articles, "x", squad=FILES / "squad_dev_1000.json", hotpotqa=FILES / "hotpotqa_100.json")
    assert len(given.library("qa_1").questions) == 1000
    assert len(given.library("qa_2").questions) == 100
    assert any(len(question.answers) > 1 for question in given.library("qa_1").questions)
    for task in ("qa_1", "qa_2"):
        for sample in build(task, 4096, 20, 0, words, given):
            assert sample.slack(4096) >= 0
            if task == "qa_1":
                assert all(answer in sample.prompt for answer in sample.outputs)
    with pytest.raises(UserError, match=r"is not a file in the form of SQuAD"):
        material.gather(articles, "x", squad=FILES / "hotpotqa_100.json").library("qa_1")
    with pytest.raises(UserError, match=r"nowhere.txt is missing"):
        material.gather(articles, "x", haystack=FILES / "nowhere.txt")


def test_a_haystack_can_be_a_file(tmp_path):
    (tmp_path / "essays.txt").write_text("Alpha beta gamma. " * 50)
    given = material.gather(articles, "x", haystack=tmp_path / "essays.txt")
    (sample,) = build("niah_single_2", 512, 1, 0, words, given)
    assert sample.prompt.count("Alpha beta gamma.") > 50, "it goes round"


@pytest.mark.parametrize(
    ("task", "answer", "references", "expected"),
    [
        ("niah_single_1", " The number is 1234567.", ("1234567",), 1.0),
        ("niah_single_1", "123456", ("1234567",), 0.0),
        ("niah_multivalue", "1111111, 3333333", ("1111111", "2222222", "3333333", "4444444"), 0.5),
        ("vt", "abcde FGHIJ", ("ABCDE", "FGHIJ"), 1.0),
        ("cwe", "", ("one", "two"), 0.0),
        ("fwe", "1. aaaaaa\x00\x012. bbbbbb", ("aaaaaa", "bbbbbb", "cccccc"), 2 / 3),
        ("qa_1", "It was in 1999, I think", ("May 1999", "1999"), 1.0),
        ("qa_1", "nobody knows", ("May 1999", "1999"), 0.0),
        ("qa_2", "YES", ("yes",), 1.0),
    ],
)
def test_scores_of_answers_known_by_hand(task, answer, references, expected):
    assert score.score(task, answer, references) == pytest.approx(expected)


def test_scoring_without_a_reference_is_refused_and_control_characters_are_line_breaks():
    with pytest.raises(ValueError, match="without a reference"):
        score.score("vt", "x", ())
    assert score.cleaned(" a\x07b \x1f") == "a\nb"


def test_effective_length_is_the_greatest_that_passes_with_a_bootstrap_interval():
    sure = {1024: [[1.0] * 20], 2048: [[0.9] * 20], 4096: [[0.1] * 20]}
    assert score.effective_length(sure, 0.85) == (2048, 2048, 2048)
    assert score.effective_length(sure, 0.95) == (1024, 1024, 1024)
    assert score.effective_length(sure, 1.1) == (0, 0, 0)
    close = {1024: [[1.0] * 20], 2048: [[1.0] * 17 + [0.0] * 3]}
    value, low, high = score.effective_length(close, 0.85)
    assert (value, low, high) == (2048, 1024, 2048)
    tasks = {1024: [[1.0] * 10, [0.0] * 10]}
    assert score.effective_length(tasks, 0.5)[0] == 1024, "tasks count alike"


def test_a_mean_is_made_of_complete_sets_only():
    assert score.plain_mean({"a": 1.0, "b": 0.0}, ("a", "b")) == (0.5, 2)
    assert score.plain_mean({"a": 1.0, "b": None}, ("a", "b")) == (None, 1)
    assert score.plain_mean({"a": 1.0}, ("a", "b")) == (None, 1)


def test_data_on_disk_are_made_once_and_again_when_anything_changed(tmp_path, monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return build(*arguments)

    monkeypatch.setattr(store, "build", counted)

    def get(task="vt", length=512, count=3, seed=0, tokenizer="t", given=None):
        return store.get(task, length, count, seed, words, tokenizer, given or small(), tmp_path)

    first = get()
    (path,) = tmp_path.iterdir()
    assert get() == first
    assert len(calls) == 1
    assert first.digest == store.digest(build("vt", 512, 3, 0, words, small()))
    other = replace(small(), digest="d")
    for again in (get(length=600), get(count=4), get(seed=1), get(tokenizer="u"), get(given=other)):
        assert again.samples
    assert len(calls) == 6
    path.write_text(path.read_text().replace("grass", "gr4ss", 1))
    assert get() == first, "a damaged file is made anew"
    assert len(calls) == 7
    refused = get("niah_multiquery", 128)
    assert refused.samples == []
    assert "cannot hold" in str(refused.refused)
    assert get("niah_multiquery", 128) == refused


def test_words_are_refused_with_the_mend_where_the_package_is_missing(monkeypatch):
    from harness.ruler import words as lists

    monkeypatch.setattr(lists, "PACKAGE", "no_such_package_of_words")
    with pytest.raises(UserError, match="pip install"):
        lists.listed.__wrapped__("noun")
    assert variables.HOPS == 4
