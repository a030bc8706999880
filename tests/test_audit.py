"""Licences of what is installed, and advisories: found ones are an error, a service out of reach is a line."""

from __future__ import annotations

import json
import re
import subprocess
from email.message import Message
from importlib.metadata import Distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness import audit, licences
from harness.errors import UserError

ROOT = Path(__file__).parents[1]


def distribution(name: str, **fields: str | list[str]) -> Distribution:
    metadata = Message()
    metadata["Name"] = name
    for field, given in fields.items():
        for text in given if isinstance(given, list) else [given]:
            metadata[field.replace("_", "-")] = text
    return cast(Distribution, SimpleNamespace(metadata=metadata, version="1"))


@pytest.mark.parametrize(
    ("licence", "fine"),
    [
        ("MIT", True),
        ("MIT License", True),
        ("Apache 2.0 License", True),
        ("BSD-3-Clause AND 0BSD AND Zlib", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-only OR MIT", True),
        ("(MIT OR GPL-2.0-only) AND BSD-2-Clause", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT AND GPL-2.0-only) OR AGPL-3.0-only", False),
        ("GNU General Public License v2 (GPLv2)", False),
        ("Other/Proprietary License", False),
        ("SUMMIT", False),
        ("LICENCE.txt", False),
        ("", False),
    ],
)
def test_a_licence_is_allowed_or_not(licence: str, fine: bool):
    assert licences.allowed(licence) is fine


def test_every_pinned_package_that_is_installed_may_be_used():
    pinned = re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    here = [package for package in licences.installed() if package.name in pinned]
    assert len(here) > 50
    assert licences.refused(here) == []


def test_no_exception_is_left_over():
    """Each still names a package that needs it; those of another machine are not here to ask."""
    needing = [each.name for each in licences.installed() if not licences.allowed(each.licence)]
    elsewhere = {pattern for pattern, why in licences.EXCEPTIONS.items() if why == licences.NVIDIA}
    for pattern in licences.EXCEPTIONS.keys() - elsewhere:
        assert any(re.fullmatch(pattern, name) for name in needing), pattern


def test_metadata_is_read_from_the_newest_field_to_the_oldest():
    old = "License :: OSI Approved :: "
    packages = [
        distribution("A.new", License_Expression="MIT", License="GPL"),
        distribution("b_kinds", Classifier=["Topic :: X", f"{old}MIT License", f"{old}GPL"], License="BSD"),
        distribution("c", License="BSD-3-Clause\n\nCopyright"),
        distribution("d"),
    ]
    found = licences.installed(packages)
    assert [tuple(package) for package in found] == [
        ("a-new", "1", "MIT"),
        ("b-kinds", "1", "MIT License OR GPL"),
        ("c", "1", "BSD-3-Clause"),
        ("d", "1", ""),
    ]
    assert [package.name for package in licences.refused(found)] == ["d"]


def test_a_licence_that_is_not_allowed_ends_the_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(licences, "distributions", lambda: [distribution("x", License_Expression="AGPL-3.0-only")])
    with pytest.raises(UserError, match=r"^x 1 is under AGPL-3\.0-only; leave it away, or say in harness/licences\.py"):
        licences.main([])


FOUND = {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
CLEAN = {"name": "b", "version": "1", "vulns": []}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        ([FOUND, CLEAN, UNKNOWN], 1, "a 1: PYSEC-1; mended in 2\n2 packages were asked for, 1 are not known"),
        ([CLEAN], 0, "1 packages were asked for, 0 are not known"),
        ([UNKNOWN], 0, "no advisory service in reach, so nothing was found out of any package (it knows none)"),
        (None, 0, "no advisory service in reach, so nothing was found out of any package (no route)"),
    ],
)
def test_advisories(answer: Any, code: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    fake = tmp_path / "pip-audit"
    said = "echo warning >&2; echo 'no route' >&2; exit 1"
    if answer is not None:
        (tmp_path / "answer.json").write_text(json.dumps({"dependencies": answer, "fixes": []}))
        said = f"cat {tmp_path}/answer.json; exit {code}"
    fake.write_text(f"#!/bin/sh\n{said}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(audit, "tool", lambda: fake)
    assert audit.main([]) == code
    out = capsys.readouterr().out
    assert out.startswith(told)
    assert out.endswith("\n")


class Machine:
    """A project with a pin, where environments are made in no time; what they install is told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(audit.venv, "create", self.create)
        self.pip = 'mkdir -p "$(dirname "$0")" && touch "$(dirname "$0")/pip-audit"'
        self.made: list[str] = []
        self.pin("pip-audit==1")

    def pin(self, text: str) -> None:
        Path("pyproject.toml").write_text(f'[project.optional-dependencies]\naudit = ["{text}"]\n')

    def create(self, folder: Path, *, with_pip: bool, clear: bool) -> None:
        self.made.append(folder.name)
        python = folder / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(f"#!/bin/sh\n{self.pip}\n")
        python.chmod(0o755)


def test_the_tool_is_installed_once_for_each_pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    machine = Machine(tmp_path, monkeypatch)
    first = audit.tool()
    assert first.is_file()
    assert audit.tool() == first
    assert machine.made == ["pip-audit==1"]
    machine.pin("pip-audit==2")
    assert audit.tool() != first
    assert machine.made == ["pip-audit==1", "pip-audit==2"]


def test_a_machine_without_an_index_or_without_pip_is_told_that_nothing_was_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    told = "no advisory service in reach, so nothing was found out of any package (pip-audit==1 cannot be installed: "
    machine = Machine(tmp_path, monkeypatch)
    machine.pip = "echo 'ERROR: No matching distribution' >&2; exit 1"
    assert audit.main([]) == 0
    assert capsys.readouterr().out == f"{told}ERROR: No matching distribution)\n"

    def without_ensurepip(folder: Path, **_: bool) -> None:
        raise subprocess.CalledProcessError(1, ["python", "-m", "ensurepip"])

    monkeypatch.setattr(audit.venv, "create", without_ensurepip)
    assert audit.main([]) == 0
    assert capsys.readouterr().out.startswith(f"{told}Command '['python', '-m', 'ensurepip']' returned")
