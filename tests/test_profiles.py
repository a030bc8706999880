"""How to run: what the profiles of clusters ask for fits the rules, and their plug-ins understand it."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.slurm import install
from tests.workflow_project import SOFTMAX, Project, paper

ROOT = Path(__file__).parents[1]
CLUSTERS = {"slurm": "snakemake_executor_plugin_slurm", "kubernetes": "snakemake_executor_plugin_cluster_sync"}
KUBECTL = """#!/usr/bin/env python3
import json, subprocess, sys
json.dump(sys.argv[1:], open("asked.json", "w"))
sys.exit(subprocess.run(sys.argv[sys.argv.index("--command") + 2:]).returncode)
"""


class Done(NamedTuple):
    returncode: int


def rules() -> dict[str, str]:
    """The text of every rule, by name."""
    text = "\n".join(file.read_text() for file in sorted((ROOT / "workflow/rules").glob("*.smk")))
    return dict(re.findall(r"^rule (\w+):\n((?:.*\n)*?)(?=^rule |\Z)", text, re.MULTILINE))


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_gives_a_gpu_to_every_rule_that_takes_one(name: str):
    profile = yaml.safe_load((ROOT / f"profiles/{name}/profile.yaml").read_text())
    given = {rule for rule, resources in profile["set-resources"].items() if resources.get("gpu")}
    assert given == {rule for rule, text in rules().items() if "**PLAN.gpu(" in text}
    assert profile["set-resources"].keys() <= rules().keys()


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_would_run_what_one_machine_would(name: str, tmp_path: Path):
    if importlib.util.find_spec(CLUSTERS[name]) is None:
        pytest.skip(f"{CLUSTERS[name].replace('_', '-')} is not installed; pyproject.toml has its version")
    project = Project(tmp_path)
    project.write("papers/first.yaml", paper("2401.00001", softmax=SOFTMAX))
    done = project.run([*project.command()[:3], "--dry-run", "--workflow-profile", f"profiles/{name}"])
    assert done.returncode == 0, done.stdout
    assert f"Using workflow specific profile profiles/{name}" in done.stdout
    counted = dict(re.findall(r"^(\w+) +(\d+)$", done.stdout, re.MULTILINE))
    assert {"corpus": "1", "train": "2", "evaluate": "1", "site": "1"}.items() <= counted.items()


@pytest.mark.parametrize("status", [0, 3])
def test_a_pod_asks_for_what_the_job_needs_and_ends_as_the_job_does(status: int, tmp_path: Path):
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    (tmp_path / "job.sh").write_text(f"echo at work\nexit {status}\n")
    names = {"ATTEST_IMAGE": "attest:1", "ATTEST_CLAIM": "volume", "ATTEST_MOUNT": "/data"}
    command = ["bash", str(ROOT / "profiles/kubernetes/submit"), "2000", "1", "1", "job.sh"]
    path = {"PATH": f"{tmp_path}:/usr/local/bin:/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=path | names, text=True, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (status, "at work\n")
    asked = json.loads((tmp_path / "asked.json").read_text())
    (overrides,) = (argument.partition("=")[2] for argument in asked if argument.startswith("--overrides="))
    (container,) = json.loads(overrides)["spec"]["containers"]
    assert container["resources"] == {"requests": {"memory": "2000M", "cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    assert container["workingDir"] == str(tmp_path)
    unset = subprocess.run(command, cwd=tmp_path, env=path, text=True, capture_output=True, timeout=60)
    assert unset.returncode != 0
    assert "ATTEST_IMAGE: set it to an image" in unset.stderr


def test_what_make_slurm_lacks_is_said_and_installed_by_root_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    ran: list[str] = []
    monkeypatch.setattr(install.subprocess, "run", lambda command, **_: ran.append(command[0]) or Done(0))
    monkeypatch.setattr(install.shutil, "which", lambda name, **_: name if name == "apt-get" else None)
    monkeypatch.setattr(install.os, "geteuid", lambda: 1000)
    assert install.main() == 1
    said = capsys.readouterr().err
    assert said.startswith("missing: munge, slurm-wlm")
    assert said.count("\n") == 1
    assert "sudo apt-get install -qq -y --no-install-recommends munge slurm-wlm" in said
    assert not ran
    monkeypatch.setattr(install.os, "geteuid", lambda: 0)
    assert install.main() == 0
    assert ran[:2] == ["apt-get", "apt-get"]
    monkeypatch.setattr(install, "commands", list)
    assert install.main() == 0
