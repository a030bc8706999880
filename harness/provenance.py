"""What made a result: commit, versions, hardware."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from harness.files import sha256_file

ROOT = Path(__file__).parent.parent
PACKAGES = ("torch", "numpy", "tokenizers", "safetensors")


@cache
def commit() -> str:
    """The commit that is checked out, with `-dirty` when tracked files differ from it; `unknown` outside git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        asked = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return asked.stdout.strip() if asked.returncode == 0 and (ROOT / ".git").exists() else "unknown"


def versions() -> dict[str, str]:
    """Of Python and of the packages that results depend on."""
    return {"python": sys.version.split()[0]} | {name: importlib.metadata.version(name) for name in PACKAGES}


def hardware(device: str) -> dict[str, Any]:
    """Machine, processor, cores, vector instructions of torch (bits depend on them), the GPU's name, its kernels."""
    import torch

    gpu = torch.cuda.get_device_name(device) if device.startswith("cuda") else None
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "gpu": gpu,
        "kernels": kernels(device),
    }


def kernels(device: str) -> str | None:
    """Which arithmetic a GPU is asked for, that of `impls.kernels` or torch's; None elsewhere, where there is one."""
    if not device.startswith("cuda"):
        return None
    return "triton" if os.environ.get("ATTEST_KERNELS") == "1" else "torch"


def _processor() -> str:
    """The processor's name; on Linux the kernel knows it better than `platform`."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")


def code() -> dict[str, str]:
    """SHA-256 of the project's modules that decide what a training run computes, of those that are loaded."""
    own = ("fit", "loss", "memory", "model", "optim", "parallel", "tasks")
    deciding = ("impls", *(f"harness.{name}" for name in own))
    files = {
        name: file
        for name, module in sys.modules.items()
        if name.startswith(deciding) and (file := getattr(module, "__file__", None))
    }
    return {name: sha256_file(path) for name, path in sorted(files.items())}
