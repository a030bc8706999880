"""What `make slurm` needs: installed where root calls it on Debian, said in one sentence where not.

The versions of Python packages are those of pyproject.toml.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.slurm.cluster import PLACES

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
PROGRAMS = {"munged": "munge", "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "sbatch": "slurm-wlm"}  # Debian's names


def programs() -> list[str]:
    """Debian packages of which a program is missing."""
    return sorted({package for program, package in PROGRAMS.items() if not shutil.which(program, path=PLACES)})


def packages() -> list[str]:
    """Python packages of the extra `slurm` that are missing or of another version."""
    wanted = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]["slurm"]
    return [
        requirement
        for requirement in wanted
        if _version(requirement.partition("==")[0]) != requirement.partition("==")[2]
    ]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commands() -> list[list[str]]:
    """What installs all that is missing."""
    apt, pip = programs(), packages()
    return [
        *(
            [["apt-get", "update", "-qq"], ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *apt]]
            * bool(apt)
        ),
        *([[sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pip]] * bool(pip)),
    ]


def main() -> int:
    needed = commands()
    if not needed:
        return 0
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        whole = " && ".join(shlex.join(["sudo"] * (command[0] == "apt-get") + command) for command in needed)
        print(f"missing: {', '.join(programs() + packages())}; on Debian this installs it: {whole}", file=sys.stderr)
        return 1
    for command in needed:
        print("running", *command, flush=True)
        if subprocess.run(command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}).returncode != 0:
            print(f"{command[0]} failed, as it says above; install the rest by hand", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
