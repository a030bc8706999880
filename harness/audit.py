"""Ask PyPI for advisories on every pinned package, by pip-audit in an environment of its own (`.venv/audit`).

    python -m harness.audit          exit code 1 where there is an advisory; 0 where there is none, or nobody to ask

A machine may reach no package index, or one that knows no advisories: then one line says that nothing was found out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import leave

FOLDER = Path(".venv/audit")
PATIENCE = 300  # seconds for all packages


class OutOfReach(Exception):
    """There is no pip-audit here, and it cannot be installed; the text says why."""


def tool(parent: Path = FOLDER) -> Path:
    """The command pip-audit, installed once for each pin. Raises OutOfReach where it cannot be."""
    settings = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    (pin,) = settings["project"]["optional-dependencies"]["audit"]
    folder = parent / pin
    command = folder / "bin" / "pip-audit"
    if not command.is_file():
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", pin]
        try:
            venv.create(folder, with_pip=True, clear=True)
            subprocess.run(pip, capture_output=True, text=True, timeout=PATIENCE, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = error.stderr if isinstance(error.stderr, str) else ""
            raise OutOfReach(f"{pin} cannot be installed: {_last(said) or error}") from None
    return command


def _last(said: str) -> str:
    """The last line of what a command said."""
    return (said.strip().splitlines() or [""])[-1]


def ask(command: Path, requirements: Path) -> tuple[list[dict[str, Any]], str]:
    """(what is known of each package; the last words of a tool that found out nothing)."""
    # pins alone: they are complete, so that nothing is resolved or installed
    options = ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "15"]
    try:
        done = subprocess.run(
            [command, "--requirement", requirements, *options],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return json.loads(done.stdout)["dependencies"], ""
    except subprocess.TimeoutExpired:
        return [], f"no answer within {PATIENCE} s"
    except (ValueError, KeyError, TypeError):
        return [], _last(done.stderr) or "no answer"


def lines(packages: list[dict[str, Any]], why: str) -> Iterator[str]:
    """A line on each advisory, then one on how far the answer goes."""
    known = [package for package in packages if "vulns" in package]
    for package in known:
        for found in package["vulns"]:
            mend = f"mended in {', '.join(found['fix_versions'])}" if found["fix_versions"] else "no version mends it"
            yield f"{package['name']} {package['version']}: {found['id']}; {mend}"
    if not known:
        yield f"no advisory service in reach, so nothing was found out of any package ({why or 'it knows none'})"
    else:
        yield f"{len(known)} packages were asked for, {len(packages) - len(known)} are not known to the service"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.audit", description="Advisories on pinned packages.")
    parser.add_argument("--requirements", type=Path, default=Path("requirements.txt"), help="(default: %(default)s)")
    given = parser.parse_args(arguments)
    try:
        packages, why = ask(tool(), given.requirements)
    except OutOfReach as error:
        packages, why = [], str(error)
    print(*lines(packages, why), sep="\n")
    return int(any(package.get("vulns") for package in packages))


if __name__ == "__main__":
    leave(main)
