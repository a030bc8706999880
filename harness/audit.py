"""Ask PyPI for published advisories on every pinned package, by pip-audit in an environment of its own, `.venv/audit`.

    python -m harness.audit          exit code 1 where there is an advisory; 0 where there is none, or nobody to ask

A machine may reach a package index that knows no advisories: then one line says so, and nothing was found out.
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

from harness.errors import UserError, leave

FOLDER = Path(".venv/audit")
PATIENCE = 300  # seconds for all packages


def tool(folder: Path = FOLDER) -> Path:
    """The command pip-audit, installed once. Raises UserError where it cannot be."""
    command = folder / "bin" / "pip-audit"
    if not command.is_file():
        pins = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
        venv.create(folder, with_pip=True, clear=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*pip, *pins["audit"]], check=False).returncode:
            raise UserError(f"{' '.join(pins['audit'])} cannot be installed into {folder}; see what pip says above")
    return command


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
        return [], (done.stderr.strip().splitlines() or ["no answer"])[-1]


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
    packages, why = ask(tool(), given.requirements)
    print(*lines(packages, why), sep="\n")
    return int(any(package.get("vulns") for package in packages))


if __name__ == "__main__":
    leave(main)
