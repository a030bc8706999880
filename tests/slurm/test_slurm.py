"""The workflow on a real Slurm (`make slurm`): the bytes that one machine makes, whatever happens to jobs and nodes."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.slurm import install
from tests.slurm.cluster import NODES, Slurm, slurm, until
from tests.workflow_project import CONFIG, ROOT, SOFTMAX, TINY, Project, paper

MISSING = [*install.programs(), *install.packages()]
WHY = f"missing: {', '.join(MISSING)}; make slurm says how to get it"
pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(MISSING), reason=WHY)]

PAPERS = ("attention-is-all-you-need", "softpick")
SEEDS = range(3)
UNLIKE = {"log", "benchmark", "history", "site", "SHA256SUMS"}  # these show when and how long, or are sums of what does


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with slurm() as started:
        yield started


def start(project: Project, cluster: Slurm, *arguments: str) -> subprocess.Popen[str]:
    """Snakemake with the profile of Slurm; the options are those of this cluster, and shorter waits."""
    command = [*project.command()[:3], "--workflow-profile", "profiles/slurm", *arguments]
    command += ["--slurm-partition-config", str(cluster.partitions)]
    command += ["--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "5"]
    into = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=project.folder, env=cluster.environment, text=True, stdout=into, stderr=subprocess.STDOUT
    )


def finish(running: subprocess.Popen[str], cluster: Slurm) -> str:
    try:
        output, _ = running.communicate(timeout=3000)
    finally:
        running.kill()
    assert running.returncode == 0, output + cluster.logs()
    return output


def results(project: Project) -> dict[str, bytes]:
    """All that was made, but for the seconds that it took, sums over these, and the process numbers in locks."""
    folder = project.folder / "results"
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
    names = {str(path.relative_to(folder)): path for path in files if path.relative_to(folder).parts[0] not in UNLIKE}
    return {name: _timeless(path) for name, path in names.items()}


def _timeless(path: Path) -> bytes:
    content = path.read_bytes()
    return re.sub(rb'"seconds": [0-9.e+-]+|"seal": "[0-9a-f]+"', b"", content) if path.suffix == ".json" else content


def test_the_smoke_profile_ends_in_the_bytes_of_one_machine(
    tmp_path: Path, cluster: Slurm, capsys: pytest.CaptureFixture[str]
):
    here, there = Project(tmp_path / "here"), Project(tmp_path / "there")
    for project in (here, there):
        shutil.copytree(ROOT / "config", project.folder / "config", dirs_exist_ok=True)
        for name in PAPERS:
            shutil.copyfile(ROOT / f"papers/{name}.yaml", project.folder / f"papers/{name}.yaml")
    before = cluster.jobs()
    smoke = ["--config", "profile=smoke", "seeds=[0]"]
    seconds = [time.monotonic()]
    output = finish(start(there, cluster, *smoke), cluster)
    seconds.append(time.monotonic())
    assert (there.folder / "results/site/index.html").is_file(), output
    finish(here.start(*smoke), cluster)
    seconds.append(time.monotonic())

    mine, theirs = results(here), results(there)
    assert mine.keys() == theirs.keys()
    assert not [name for name in mine if mine[name] != theirs[name]]
    assert sum(name.endswith(".safetensors") for name in mine) >= 5
    jobs = [job for number, job in cluster.jobs().items() if number not in before]
    assert {job["state"] for job in jobs} == {"COMPLETED"}
    placed = {(job["comment"].split("_")[1], job["partition"]) for job in jobs}
    assert {place for place in placed if place[1] == "gpu"} == {("train", "gpu"), ("evaluate", "gpu")}
    assert {("corpus", "cpu"), ("prove", "cpu"), ("costs", "cpu")} <= placed
    with capsys.disabled():
        size = sum(map(len, mine.values()))
        took = [round(after - before) for before, after in pairwise(seconds)]
        print(f"\n{len(jobs)} jobs; {len(mine)} files, {size} bytes equal; {took[0]} s on Slurm, {took[1]} s here")


class Models(NamedTuple):
    """One model and three seeds, which train for some seconds and save often; `digests` are of weights made here."""

    project: Project
    targets: list[str]
    digests: list[str]

    def made(self) -> list[str]:
        return [hashlib.sha256((self.project.folder / target).read_bytes()).hexdigest() for target in self.targets]

    def log(self) -> str:
        return "".join(file.read_text() for file in (self.project.folder / "results/log/train").glob("*"))

    def start(self, cluster: Slurm, *arguments: str) -> tuple[subprocess.Popen[str], str]:
        """The workflow on Slurm from scratch, once a training has saved a state; the number of that job."""
        shutil.rmtree(self.project.folder / "results")
        running = start(self.project, cluster, *self.targets, *arguments)
        above = self.project.folder / "results/state"
        until(lambda: list(above.rglob("state.pt")) or running.poll() is not None, "a saved state", cluster.logs, 300)
        assert running.poll() is None, finish(running, cluster)
        (state, *_) = above.rglob("state.pt")
        (job,) = cluster.running("train", state.parent.name.removeprefix("seed"))
        return running, job


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    profile = json.loads(json.dumps(TINY))
    profile["tasks"]["recall"] |= {"steps": 400, "save_every": 20}
    seeds = {"seeds": list(SEEDS), "suites": ["recall"]}
    project = Project(tmp_path_factory.mktemp("models"), CONFIG | seeds, profile)
    project.write("papers/first.yaml", paper("2401.00001", softmax=SOFTMAX))
    (run,) = set(re.findall(r"train (softmax-\S+) on", project.snakemake("--dry-run").stdout))
    targets = [f"results/runs/{run}/recall/seed{seed}/model.safetensors" for seed in SEEDS]
    done = project.snakemake(*targets)
    assert done.returncode == 0, done.stdout
    models = Models(project, targets, [])
    return models._replace(digests=models.made())


ANYWHERE = ("--set-resources", "train:gpu=0")  # the partition with two nodes


def test_a_cancelled_job_is_submitted_again_and_resumes(models: Models, cluster: Slurm):
    running, job = models.start(cluster)
    cluster.ask("scancel", job)
    output = finish(running, cluster)
    assert cluster.jobs()[job]["state"] == "CANCELLED"
    assert f"SLURM-job '{job}' failed, SLURM status is: 'CANCELLED'" in output
    assert "Trying to restart" in output
    assert "resumed at step" in models.log()
    assert models.made() == models.digests


def test_a_drained_node_ends_its_job_and_gets_no_other(models: Models, cluster: Slurm):
    before = cluster.jobs()
    running, job = models.start(cluster, *ANYWHERE)
    node = cluster.jobs()[job]["node"]
    cluster.set_node(node, "DRAIN")
    try:
        finish(running, cluster)
        shown = cluster.ask("sinfo", "--noheader", f"--nodes={node}", "--format=%t", "--partition=cpu")
    finally:
        cluster.set_node(node, "RESUME")
    assert shown.strip() == "drain"
    done = {number: (job["state"], job["node"]) for number, job in cluster.jobs().items() if number not in before}
    assert done.pop(job) == ("COMPLETED", node)
    (other,) = set(NODES) - {node}
    assert Counter(done.values())["COMPLETED", other] >= len(SEEDS) - 2  # the last one at least came after the drain
    assert {state for state, _ in done.values()} == {"COMPLETED"}
    assert models.made() == models.digests


def test_a_job_whose_node_goes_down_goes_on_elsewhere(models: Models, cluster: Slurm):
    running, job = models.start(cluster, *ANYWHERE)
    node = cluster.jobs()[job]["node"]
    cluster.set_node(node, "DOWN")
    try:
        finish(running, cluster)
    finally:
        cluster.set_node(node, "RESUME")
    assert "Restarts=1" in cluster.ask("scontrol", "show", "job", job)
    assert cluster.jobs()[job]["state"] == "COMPLETED"
    assert cluster.jobs()[job]["node"] != node
    assert "resumed at step" in models.log()
    assert models.made() == models.digests
