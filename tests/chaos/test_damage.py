"""Files that a disk cut short or changed by one bit: seen by their hash, named in one sentence, never used."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import history, measured, model, records, sources, state
from harness.data import Corpus
from harness.errors import UserError
from harness.plan import Plan
from harness.report import reading
from tests.chaos.bench import Bench, until

pytestmark = pytest.mark.chaos

EACH = 12  # bits flipped in each file, and as many cuts


def harms(path: Path) -> Iterator[str]:
    """Harm a file in one way after another; between two it is whole again."""
    whole, draw = path.read_bytes(), random.Random(path.name)
    for n in range(2 * EACH):
        at = draw.randrange(len(whole))
        if n % 2:
            path.write_bytes(whole[:at])
            yield f"{path.name} cut to {at} bytes"
        else:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :])
            yield f"{path.name} with another bit at {at}"
    path.write_bytes(whole)


def refused(bench: Bench, path: Path, read: Callable[[], object]) -> None:
    """Reading is refused for every harm, in one line that names the file or its folder; whole again, it is read."""
    for harm in harms(path):
        with pytest.raises(UserError) as error:
            read()
        said = str(error.value)
        assert "\n" not in said, harm
        assert str(path) in said or str(path.parent) in said, harm
        bench.counts["damaged files refused"] += 1
    read()


@pytest.fixture
def here(bench: Bench, results: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The plan of the project, as its own commands see it."""
    monkeypatch.chdir(bench.project.folder)
    return Plan.load()


def run(bench: Bench, *words: str) -> subprocess.CompletedProcess[str]:
    return bench.project.run([sys.executable, "-m", *words])


def in_one_sentence(said: str, path: str) -> bool:
    return path in said and "Traceback" not in said


def test_weights(bench: Bench, results: Path):
    for path in sorted(results.rglob("model.safetensors")):
        refused(bench, path, lambda path=path: model.load(path.parent))


def test_damaged_weights_give_no_number_and_are_made_again_once_deleted(bench: Bench, results: Path):
    path = next(results.glob("runs/*/lm/seed0/model.safetensors"))
    inside = str(path.relative_to(bench.project.folder))
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    for kept in results.glob("state/*/*/*/*.json"):
        kept.unlink()
    _, said = bench.build()
    found = records.read_evaluation(path.with_name("loss.json"))
    assert (found.status, found.rows) == ("failed", [])
    assert in_one_sentence(found.reason or "", inside), said
    path.with_name("run.json").unlink()  # as the sentence says
    bench.finish()
    bench.counts["damaged files refused"] += 1


def test_kept_records(bench: Bench, results: Path, here: Plan):
    """A record that is kept for later is put back only as it was."""
    from harness import held

    (path,) = Path("results/state").glob("*/lm/seed0/loss.json")
    run_id = path.parts[2]
    basis = str(records.read_evaluation(Path("results/runs", *path.parts[2:])).basis)
    for harm in harms(path):
        assert held.find(run_id, "loss", 0, basis) is None, harm
        bench.counts["damaged files refused"] += 1
    assert held.find(run_id, "loss", 0, basis) is not None


def test_corpus(bench: Bench, results: Path, here: Plan):
    folder = here.profile.data.folder
    for name in ("manifest.json", "train.npy", "valid.npy", "test.npy", "token_bytes.npy", "tokenizer.json"):

        def read() -> None:
            corpus = Corpus(folder)
            for split in ("train", "valid", "test"):
                corpus.tokens(split)
            corpus.tokenizer()

        refused(bench, folder / name, read)


def test_a_damaged_corpus_is_named_by_the_command(bench: Bench, results: Path):
    path = next(results.glob("data/*/train.npy"))
    path.write_bytes(path.read_bytes()[:-1])
    run_id = next(results.glob("runs/*")).name
    done = run(bench, "harness.train", run_id, "--task", "lm", "--seed", "0", "--profile", "tiny", "--device", "cpu")
    assert done.returncode == 1
    assert in_one_sentence(done.stdout, str(path.relative_to(bench.project.folder))), done.stdout


def test_text_of_the_corpus(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = sources.find_wiki()
    if path is None:
        pytest.skip(f"{sources.WIKI} is not installed")
    copy = tmp_path / path.name
    shutil.copyfile(path, copy)
    monkeypatch.setattr(sources, "find_wiki", lambda: copy)
    for read in (sources.wiki, sources.descriptions):
        refused(bench, copy, read)


def test_tables(bench: Bench, results: Path, here: Plan):
    folder = Path("results")
    for name in ("measurements.csv", "measurements.parquet", "runs.json", "items.parquet"):
        values = folder / ("measurements.parquet" if name.endswith("parquet") else "measurements.csv")
        refused(
            bench,
            folder / name,
            lambda values=values: measured.read(values, folder / "runs.json", folder / "items.parquet"),
        )
    for name in ("measurements.parquet", "runs.json", "items.parquet"):
        refused(bench, folder / name, lambda: reading.load(here, folder))
    for name in ("measurements.json", "runs.json"):
        refused(bench, folder / name, lambda: history.snapshot(here, folder, history.datetime.now(history.UTC)))


def test_a_damaged_table_is_named_by_the_build_and_made_again(bench: Bench, results: Path):
    path = results / "measurements.csv"
    text = path.read_text()
    path.write_text(text[: text.rindex("\n", 0, -1) + 1])  # a row less, which no parser sees
    code, said = bench.build()
    assert code == 1
    assert in_one_sentence(said, "results/measurements.csv is damaged"), said
    path.unlink()
    bench.finish(site=True)


def test_resume_state(bench: Bench, results: Path, here: Plan, tmp_path: Path):
    """A state that is not whole is not used; the run begins anew and ends in the same bytes."""
    for pattern in ("model.safetensors", "curve.jsonl", "run.json"):
        next(results.glob(f"runs/*/recall/seed0/{pattern}")).unlink()
    running = bench.start()
    path = until(lambda: next(results.glob("state/*/recall/seed0/state.pt"), None), "a saved state")
    kept = path.read_bytes()
    bench.kill(running)
    path.write_bytes(kept)
    for harm in harms(path):
        said: list[str] = []
        assert state.load(path, "any", said.append) is None, harm
        assert len(said) == 1, harm
        assert f"{path} is damaged" in said[0], harm
        bench.counts["damaged files refused"] += 1
    path.write_bytes(kept[:-1])
    bench.finish()
    (log,) = results.glob("log/train/*.recall.seed0.log")
    assert "is damaged, so it is not used" in log.read_text()
