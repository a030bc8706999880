"""The rules of the house that a machine can hold: sizes, directions of imports, pins, promises of the README."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import impls
from harness import dependencies
from harness.config import load_config, load_profile, profile_names
from harness.files import read_json, sha256_file
from harness.spec import load_files, paper_files

ROOT = Path(__file__).parents[1]
VENDORED = ("templates/vendor/", "tests/vendor/")
TEXT = {".py", ".smk", ".md", ".yaml", ".yml", ".toml", ".txt", ".in", ".cff", ".j2", ".css", ".js", ".json", ""}


def tracked() -> list[str]:
    """The project's own text files, as git knows them; where there is no git, as they lie there."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True, check=False).stdout.split(
        "\n"
    )
    hidden = (".venv", ".git", ".snakemake", "results")
    found = [name for name in listed if name and (ROOT / name).is_file()] or [
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*")
        if path.is_file() and path.relative_to(ROOT).parts[0] not in hidden
    ]
    return [name for name in found if Path(name).suffix in TEXT and not name.startswith(VENDORED)]


def modules(package: str) -> list[str]:
    return sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / package).rglob("*.py")
        if path.stem != "__init__"
    )


@pytest.mark.parametrize(("package", "limit"), [("impls", 250), ("harness", 280), ("benchmarks", 250)])
def test_a_file_is_short(package: str, limit: int):
    long = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / package).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > limit
    }
    assert not long


@pytest.mark.parametrize("name", impls.names())
def test_a_mechanism_is_one_short_file_on_shared_parts_alone(name: str):
    assert len((ROOT / f"impls/{name}.py").read_text().splitlines()) <= 200
    shared = {f"impls.{name}" for name in ("base", "convs", "decays", "kernels", "ops", "parts", "solvers")}
    allowed = {"impls"} | shared | {m for m in modules("impls") if m.startswith("impls.kernels.")}
    assert dependencies.imports(f"impls.{name}") <= allowed


def test_mechanisms_know_nothing_of_the_harness_and_nobody_imports_the_tests():
    frames = {"impls.study", "impls.method"}  # and studies: they say what they measure in the words of the harness
    for module in set(modules("impls")) - frames - {f"impls.{name}" for name in impls.studies()}:
        assert not {name for name in dependencies.imports(module) if name.startswith("harness")}, module
    assert {name for frame in frames for name in dependencies.imports(frame) if name.startswith("harness")} <= {
        "harness",
        "harness.metrics",
        "harness.suites",
    }
    for module in modules("harness") + modules("impls"):
        text = (ROOT / Path(*module.split("."))).with_suffix(".py").read_text()
        assert not re.search(r"^\s*(from|import) (tests|benchmarks)\b", text, re.MULTILINE), module


def test_no_path_of_one_machine_stands_in_the_project():
    machine = re.compile("/(" + "|".join(("home", "root", "work", "Users", "mnt")) + ")/[a-z]")
    found = [
        f"{name}: {match.group()}"
        for name in tracked()
        if (match := machine.search((ROOT / name).read_text(encoding="utf-8")))
    ]
    assert not found


def test_nothing_is_left_unfinished():
    unfinished = re.compile(
        r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b|raise NotImplemented" + "Error"
    )
    found = [name for name in tracked() if unfinished.search((ROOT / name).read_text(encoding="utf-8"))]
    assert not found


def test_every_shipped_yaml_loads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    profiles = [load_profile(name) for name in profile_names()]
    assert {profile.name for profile in profiles} >= {"smoke", "laptop", "gpu", "paper"}
    assert load_config().profile == "laptop"
    assert load_files(paper_files(), profiles)
    plain = [ROOT / name for name in ("environment.yml", "CITATION.cff")] + list((ROOT / "profiles").rglob("*.yaml"))
    assert len(plain) == 5
    for path in plain:
        assert isinstance(yaml.safe_load(path.read_text()), dict), path


@pytest.mark.parametrize("folder", [folder for folder in VENDORED if (ROOT / folder / "vendor.json").is_file()])
def test_vendored_files_are_what_they_are_said_to_be(folder: str):
    records = read_json(ROOT / folder / "vendor.json")
    assert {record["file"]: record["sha256"] for record in records} == {
        record["file"]: sha256_file(ROOT / folder / record["file"]) for record in records
    }
    assert all(record["version"] and record["licence"] for record in records)
    here = {path.name for path in (ROOT / folder).iterdir()} - {"vendor.json", "LICENSES.txt"}
    assert here == {record["file"] for record in records}


def test_every_requirement_is_pinned_and_none_is_of_this_machine():
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = re.compile(r"([a-z0-9][a-z0-9-]*)==([0-9][0-9a-z.]*)( ;[^#]*)?(\s+# via .*)?")
    parts = [pinned.fullmatch(line) for line in lines]
    assert not [line for line, match in zip(lines, parts, strict=True) if match is None]
    versions = {match[1]: match[2] for match in parts if match}
    assert not [name for name in versions if name.startswith(("nvidia", "cuda"))]
    assert (versions["torch"], versions["triton"]) == ("2.13.0", "3.7.1")
    wanted = re.findall(r"^([a-z][a-z0-9-]*)", (ROOT / "requirements.in").read_text(), re.MULTILINE)
    assert set(wanted) <= set(versions)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_what_the_pages_promise_exists(page: str):
    text = (ROOT / page).read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE))
    assert named <= targets
    assert named >= {"test"}
    for module in re.findall(r"python -m (harness\.[a-z_]+)", text):
        assert dependencies.imports(module), module
    for link in re.findall(r"\]\(([^)#:]+)\)", text) + re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.[a-z]+)`", text):
        assert (ROOT / link).exists() or link.startswith(("papers/my-paper", "impls/biased", "results/")), link


def test_the_paper_of_the_readme_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    (shown,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    paper = tmp_path / "my-paper.yaml"
    paper.write_text(shown.replace("{biased: {impl: biased}", "{biased: {impl: softmax}"))
    assert len(shown.splitlines()) <= 12
    assert load_files([paper])["my-paper"].claims


def test_reading_the_papers_imports_no_library_that_one_module_alone_needs():
    slow = ("triton", "sklearn", "numba", "transformers", "pandas", "scipy.stats", "torch._dynamo")
    code = f"""
import importlib, sys, impls
from harness.spec import load_papers
load_papers()
for name in (*impls.names(), *impls.studies(), *impls.methods()):
    importlib.import_module(f"impls.{{name}}")
sys.exit(" ".join(sorted(set({slow}) & set(sys.modules))) or None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
