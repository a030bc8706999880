"""A Slurm of two nodes on this machine, for as long as a block lasts: no root, no systemd, no cgroups, no accounting.

Every daemon is Debian's own, kept in one folder by its options. Two CPUs in all: `n1` has one, `n2` has one and a
generic resource `gpu`, a name without a device. The partition `cpu` spans both nodes, the partition `gpu` is `n2`.
A job's processes are known by their group: proctrack/linuxproc, which goes by parents, loses what outlives its parent.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

CONF = """
ClusterName=attest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/slurmctld
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=2,bf_interval=2
KillWait=5
MinJobAge=86400
GresTypes=gpu
NodeName=n1 NodeAddr=127.0.0.1 NodeHostname={host} Port={ports[1]} CPUs=1 RealMemory=100000
NodeName=n2 NodeAddr=127.0.0.1 NodeHostname={host} Port={ports[2]} CPUs=1 RealMemory=100000 Gres=gpu:1
PartitionName=cpu Nodes=n1,n2 Default=YES
PartitionName=gpu Nodes=n2
"""
NODES = ("n1", "n2")
PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # where the daemons are; users seldom have these on the PATH


@dataclass(frozen=True)
class Slurm:
    """A running cluster."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """For commands that talk to this cluster; one thread each, as its nodes have one CPU each."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "SLURM_CONF": str(self.folder / "slurm.conf"), "OMP_NUM_THREADS": "1"}

    @property
    def partitions(self) -> Path:
        """What each partition has, for the plug-in to choose one for each job."""
        return self.folder / "partitions.yaml"

    def ask(self, *command: str) -> str:
        """The output of a command of Slurm. Raises AssertionError with what it says, where it fails."""
        done = subprocess.run(command, env=self.environment, text=True, capture_output=True, timeout=60)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}{self.logs()}"
        return done.stdout

    def jobs(self) -> dict[str, dict[str, str]]:
        """State, node and rule of every job so far, by number."""
        shown = self.ask("squeue", "--states=all", "--noheader", "--format=%i|%T|%N|%P|%k").splitlines()
        keys = ("state", "node", "partition", "comment")
        return {number: dict(zip(keys, rest, strict=True)) for number, *rest in (line.split("|") for line in shown)}

    def running(self, rule: str, seed: str) -> list[str]:
        """Numbers of the jobs of a rule and a seed that run now."""
        return [
            number
            for number, job in self.jobs().items()
            if job["state"] == "RUNNING" and re.fullmatch(rf"rule_{rule}_wildcards_.*_{seed}", job["comment"])
        ]

    def set_node(self, node: str, state: str) -> None:
        self.ask("scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=test")

    def logs(self) -> str:
        """The end of what each daemon said."""
        return "".join(f"\n== {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self.folder.glob("*.log")))


@contextmanager
def slurm() -> Iterator[Slurm]:
    """Start the cluster, and end it with its jobs."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name, ExitStack() as daemons:
        cluster = Slurm(Path(name))
        _configure(cluster.folder)
        _start(cluster, daemons, "munged", *_munge(cluster.folder))
        until(lambda: (cluster.folder / "munge.socket").exists(), "munged", cluster.logs)
        _start(cluster, daemons, "slurmctld", "-D")
        for node in NODES:
            _start(cluster, daemons, "slurmd", "-D", "-N", node, name=node)
        until(lambda: _idle(cluster), "two idle nodes", cluster.logs)
        daemons.callback(_cancel_all, cluster)
        yield cluster


def _configure(folder: Path) -> None:
    folder.chmod(0o711)  # munged wants its socket to be within everyone's reach
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    for name in ("slurmctld", *NODES, "bin"):
        (folder / name).mkdir()
    host = socket.gethostname().split(".")[0]
    settings = CONF.format(host=host, ports=_ports(3), folder=folder, user=getpass.getuser())
    (folder / "slurm.conf").write_text(settings)
    (folder / "gres.conf").write_text("NodeName=n2 Name=gpu File=/dev/null\n")
    (folder / "partitions.yaml").write_text("partitions: {cpu: {max_gpu: 0}, gpu: {max_gpu: 1}}\n")
    # within a job the plug-in drops SLURM_CONF, as on a cluster the file lies where srun looks for it
    srun = folder / "bin/srun"
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
    srun.chmod(0o755)


def _munge(folder: Path) -> list[str]:
    files = [f"--{kind}-file={folder}/munge.{kind}" for kind in ("key", "pid", "seed")]
    return ["--foreground", f"--socket={folder}/munge.socket", f"--log-file={folder}/munged.log", *files]


def _ports(number: int) -> list[int]:
    """Free ports, held together until all are known, so that they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _start(cluster: Slurm, daemons: ExitStack, program: str, *arguments: str, name: str = "") -> None:
    found = shutil.which(program, path=PLACES)
    assert found, f"{program} is missing; python -m tests.slurm.install says how to get it"
    log = daemons.enter_context((cluster.folder / f"{name or program}.out.log").open("w"))
    process = subprocess.Popen([found, *arguments], env=cluster.environment, stdout=log, stderr=subprocess.STDOUT)
    daemons.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _idle(cluster: Slurm) -> bool:
    asked = ["sinfo", "--noheader", "--Node", "--format=%N %t", "--partition=cpu"]
    shown = subprocess.run(asked, env=cluster.environment, text=True, capture_output=True, timeout=60)
    return sorted(shown.stdout.split("\n"))[-2:] == [f"{node} idle" for node in NODES]


def _cancel_all(cluster: Slurm) -> None:
    subprocess.run(["scancel", "--user", getpass.getuser()], env=cluster.environment, timeout=60)
    until(lambda: not cluster.ask("squeue", "--noheader"), "the last jobs to end", cluster.logs)


def until(found: Callable[[], object], what: str, told: Callable[[], str], seconds: float = 120) -> None:
    """Wait for a condition; `told` says what is known where it does not come."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, f"waited in vain for {what}{told()}"
        time.sleep(0.1)
