"""A new paper begins whole: its spec names every line to be filled in, its module and its test fail by name."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from harness import new
from harness.errors import UserError
from harness.spec import load_files

ROOT = Path(__file__).parents[1]
SHAPES = list(new.SHAPES)
FILL = {  # a text for every empty value, by its key
    "title": "T",
    "summary": "S.",
    "scale_gap": "paper: large; here: small",
    "quote": "it is",
    "where": "abstract",
    "margin": 0.1,
    "margin_from": "ours",
    "reason": "too large",
    "value": 1,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the modules, in which the names of new ones are found."""
    shutil.copytree(ROOT / "impls", tmp_path / "impls", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(new.impls, "__file__", str(tmp_path / "impls" / "__init__.py"))
    return tmp_path


def filled(value):
    if isinstance(value, dict):
        return {key: FILL[key] if given is None else filled(given) for key, given in value.items()}
    return [filled(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_not_filled_in_is_named_by_its_line(shape, project, capsys):
    assert new.main(["arXiv:2401.01234v2", "--impl", "my_idea", "--shape", shape]) == 0
    said = capsys.readouterr().out
    assert re.findall(r"^\d\. ", said, re.MULTILINE) == ["1. ", "2. ", "3. "]
    spec = Path("papers/my-idea.yaml")
    assert {line for line in said.splitlines() if Path(line).is_file()} == {
        str(spec),
        "impls/my_idea.py",
        new.SHAPES[shape].test.format(impl="my_idea"),
    }
    with pytest.raises(UserError) as refused:
        load_files([spec])
    lines = spec.read_text().splitlines()
    empty = [k + 1 for k, line in enumerate(lines) if re.fullmatch(r" *[a-z_]+: *(\[\])? *(#.*)?", line)]
    empty = [k for k in empty if not re.match(r"(recipe|runs|claims|deviations):", lines[k - 1])]
    assert len(empty) >= 10
    for line in empty:
        assert f"{spec}:{line}: " in str(refused.value), lines[line - 1]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_spec_that_is_filled_in_is_valid(shape, project):
    """Against the project's own modules, in a process of its own, for what impls holds is read once."""
    for folder in ("harness", "config"):
        shutil.copytree(ROOT / folder, project / folder, ignore=shutil.ignore_patterns("__pycache__"))
    new.main(["2401.01234", "--impl", "my_idea", "--shape", shape])
    spec = Path("papers/my-idea.yaml")
    given = filled(yaml.safe_load(spec.read_text())) | {"authors": ["A. Author"]}
    spec.write_text(yaml.safe_dump(given))
    done = subprocess.run([sys.executable, "-m", "harness.spec", "check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok: 1 paper, 2 runs, 2 claims\n"), done.stderr


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_not_written_fails_by_its_name(shape, project):
    for folder in ("harness", "tests"):
        shutil.copytree(ROOT / folder, project / folder, ignore=shutil.ignore_patterns("__pycache__", "vendor"))
    new.main(["2401.01234", "--impl", "my_idea", "--shape", shape])
    command = new.SHAPES[shape].proof.format(impl="my_idea").split()[1:]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.search(r"(impls|tests/equations)/my_idea\.py: \w+ is not written yet", done.stdout + done.stderr)


def test_nothing_is_written_over(project):
    new.main(["2401.01234", "--impl", "my_idea"])
    before = {path: path.read_text() for path in project.rglob("*my?idea*")}
    assert len(before) == 3
    for arguments, why in [
        (["2401.01234", "--impl", "other"], r"arXiv 2401\.01234 is the paper papers/my-idea\.yaml already"),
        (["2401.00002", "--slug", "my-idea"], r"papers/my-idea\.yaml is there already"),
        (
            ["2401.00002", "--impl", "softmax", "--shape", "study"],
            r"impls/softmax\.py is there already and is no study",
        ),
        (["2401.0"], r"'2401\.0' is not an arXiv id"),
        (["2401.00002", "--impl", "My-Idea"], r"--impl 'My-Idea' is not a name"),
        (["2401.00002", "--slug", "../x"], r"--slug: '\.\./x' is not a slug"),
    ]:
        with pytest.raises(UserError, match=why):
            new.main(arguments)
    assert before == {path: path.read_text() for path in before}
    assert len(list(project.glob("papers/*"))) == 1


def test_a_module_that_is_there_is_used_as_it_is(project):
    before = (project / "impls/softpick.py").read_text()
    new.main(["2401.00002", "--impl", "softpick", "--slug", "again"])
    assert (project / "impls/softpick.py").read_text() == before
    assert yaml.safe_load(Path("papers/again.yaml").read_text())["runs"]["softpick"] == {"impl": "softpick"}
    new.main(["2401.00003"])
    assert yaml.safe_load(Path("papers/arxiv-2401-00003.yaml").read_text())["year"] == 2024
