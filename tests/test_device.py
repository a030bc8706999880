"""One job on each GPU at a time, without a GPU: the locks are files. And what a record says of its making."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from harness import device, provenance
from harness.errors import UserError
from tests.conftest import SHARED

REPO = Path(__file__).parents[1]
HOLD = "from harness import device; import time\nwith device.slot([0]): print('held', flush=True); time.sleep(60)"
WRAP = """
import os, subprocess, sys
from harness.device import slot
with slot([int(index) for index in os.environ["SLOT_IDS"].split(",")]):
    sys.exit(subprocess.call(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def own_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(device, "slots", lambda: tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # so that what a slot sets here goes when the test ends
    return tmp_path


def test_jobs_take_different_gpus_and_the_next_waits_for_a_free_one():
    taken: list[int] = []
    with device.slot([0, 1]) as first, device.slot([0, 1]) as second:
        assert {first, second} == {0, 1}

        def third() -> None:
            with device.slot([0, 1]) as index:
                taken.append(index)

        thread = threading.Thread(target=third)
        thread.start()
        time.sleep(2 * device.POLL)
        assert not taken
    thread.join(10)
    assert len(taken) == 1


def test_a_killed_job_frees_its_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    holder = subprocess.Popen([sys.executable, "-c", HOLD], cwd=REPO, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with device.slot([0, 1]) as other:
        assert other == 1
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with device.slot([0, 1]) as again:
        assert again == 0


def test_gpus_are_locked_by_their_number_on_the_machine(own_slots: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    with device.slot([0]) as index:
        assert index == 0
        assert [path.name for path in own_slots.iterdir()] == ["gpu-3.lock"]


def test_a_lock_that_is_there_keeps_what_it_holds(own_slots: Path):
    (own_slots / "gpu-0.lock").write_text("mine")
    with device.slot([0]):
        pass
    assert (own_slots / "gpu-0.lock").read_text() == "mine"


def test_a_folder_of_locks_that_another_laid_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = device.slots()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert device.slots() == folder
    folder.rmdir()
    for target in ("nowhere", "."):
        folder.symlink_to(target)
        with pytest.raises(UserError, match=r"is not a folder of your own; remove it, or let TMPDIR name"):
            device.slots()
        folder.unlink()
    another = os.getuid() + 1
    folder.with_name(f"attest-slots-{another}").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: another)
    with pytest.raises(UserError, match=r"is not a folder of your own"):
        device.slots()


def test_a_cpu_needs_no_slot_and_threads_are_set(own_slots: Path):
    with device.claim("cpu", threads=1) as name:
        assert name == "cpu"
        assert torch.get_num_threads() == 1
    assert not list(own_slots.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_refused_and_auto_does_without():
    with device.claim("auto") as name:
        assert name == "cpu"
    for wanted in ("cuda", "cuda:1"):
        with (
            pytest.raises(UserError, match=rf"device '{wanted}': this machine has 0 usable GPUs; set device: cpu"),
            device.claim(wanted),
        ):
            pass


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no failure reports at {SHARED}")
def test_slots_against_public_failure_reports(tmp_path: Path):
    (tmp_path / "wrap.py").write_text(WRAP)
    script = SHARED / "pitfalls" / "dev" / "s02_gpu_slots.py"
    env = {**os.environ, "PYTHONPATH": str(REPO), "TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    wrap = f"{sys.executable} {tmp_path / 'wrap.py'}"
    done = subprocess.run([sys.executable, str(script), "--wrap", wrap], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_record_names_versions_hardware_and_the_commit():
    assert set(provenance.versions()) == {"python", *provenance.PACKAGES}
    assert provenance.hardware("cpu")["gpu"] is None
    assert provenance.hardware("cpu")["cores"] >= 1
    known = provenance.commit()
    assert known == "unknown" or len(known.removesuffix("-dirty")) == 40


def test_outside_git_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    assert provenance.commit.__wrapped__() == "unknown"


def test_code_that_decides_weights_is_digested():
    importlib.import_module("harness.fit")
    importlib.import_module("impls.softmax")
    code = provenance.code()
    assert {"harness.fit", "harness.loss", "harness.model", "harness.optim", "impls.base", "impls.softmax"} <= set(code)
    assert "harness.site" not in code
