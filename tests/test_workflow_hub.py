"""A model of the Hub as a run of a paper: taken, measured, judged and shown by the workflow, offline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import tiny_model
from tests.workflow_project import CONFIG, TINY, Project, paper

pytest.importorskip("lm_eval")
PROFILE = {**TINY, "suites": {"zeroshot": {"tasks": ["piqa", "arc_easy"], "limit": 3}}}
MEASURED = {"evaluate": 1, "aggregate": 1, "judge": 1, "history": 1, "site": 1}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("hub")
    tiny_model.save_hub(folder / "hub")
    config = CONFIG | {"suites": ["zeroshot"], "hub": "hub"}
    project = Project(folder, config, PROFILE)
    tiny_model.save(folder / "hub" / "someone" / "tiny-llama")
    project.write("papers/base.yaml", paper("2401.00007", base={"hf": "someone/tiny-llama"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_DATASETS_CACHE", str(folder / "cache"))
        done = project.snakemake()
    assert done.returncode == 0, done.stdout
    before = done.stdout.split("Execute")[0]
    assert "zeroshot of someone/tiny-llama leaves out arc_easy: its data set is not in the folder" in before, (
        done.stdout
    )
    return project


def test_it_is_measured_and_has_its_page(built: Project):
    (path,) = built.folder.glob("results/runs/hf_tiny_llama-*/lm/seed0/zeroshot.json")
    record = json.loads(path.read_text())
    assert {(row["task"], row["metric"], row["n"]) for row in record["rows"]} == {
        ("piqa", "acc", 3),
        ("piqa", "acc_norm", 3),
    }
    assert set(record["gaps"]) == {"arc_easy/acc", "arc_easy/acc_norm"}
    (page,) = built.folder.glob("results/site/runs/hf_tiny_llama-*.html")
    text = page.read_text()
    assert "model of the Hub <code>someone/tiny-llama</code>" in text
    assert "impls/hf_tiny_llama.py" not in text
    assert "It is measured as it is; nothing was trained." in text
    assert "--hf someone/tiny-llama --hub hub" in text
    assert f"logs/{page.stem}.lm.seed0.txt" in text
    assert "piqa" in (built.folder / "results/site/suites/zeroshot.html").read_text()


def test_other_data_or_another_model_is_measured_again(built: Project):
    with built.edited("hub/baber/piqa/validation.jsonl", lambda text: text.replace("read", "tear")):
        assert built.would_run() == MEASURED
    model = Path("hub/someone/tiny-llama/config.json")
    with built.edited(
        str(model), lambda text: text.replace('"max_position_embeddings": 128', '"max_position_embeddings": 64')
    ):
        assert built.would_run() == MEASURED | {"pretrained": 1, "costs": 1}
