"""What lies on the Hugging Face Hub, or in a local folder that stands for it (`hub` in config/config.yaml).

Such a folder holds folders named like the Hub's ids, `Rowan/hellaswag`; they are used as they are, without a network.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


def place(name: str, hub: str | None) -> Path | None:
    """The local folder of what the Hub calls `name`, or None where it is to be fetched."""
    for folder in [*([Path(hub) / name] if hub else []), Path(name)]:
        if os.path.isdir(folder):  # unlike Path.is_dir False for what is too long for a name, too
            return folder.resolve()
    return None


def file(name: str, hub: str | None) -> Path:
    """The file of that name, on its own or in the folder that stands for the Hub; it may be missing."""
    path = Path(name)
    inside = Path(hub) / name if hub else path
    return inside if os.path.isfile(inside) and not os.path.isfile(path) else path


def files(name: str, hub: str | None) -> list[Path]:
    """The files of that folder, for what is made of them depends on them; none where it is to be fetched."""
    folder = place(name, hub)
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder else []


def offline() -> bool:
    """Whether the environment says that nothing is to be fetched."""
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in OFFLINE)


def obstacle(dataset: str, hub: str | None, modules: Iterable[str] = ()) -> str | None:
    """Why a task cannot be measured on this machine, found in no time; None when nothing speaks against it."""
    lacking = [module for module in modules if find_spec(module) is None]
    if lacking:
        return f"its scoring needs {', '.join(lacking)}; pip install {' '.join(lacking)}"
    if hub and not os.path.isdir(Path(hub) / dataset):
        return f"its data set is not in the folder that stands for the Hub ({dataset} in {hub})"
    if not hub and offline():
        return f"its data set {dataset} is on the Hub, and the environment says to stay offline"
    return None


def unreached(tasks: Mapping[str, str]) -> str:
    """What is said of tasks whose data the network did not bring."""
    return "; ".join(f"{name}: {why}" for name, why in tasks.items())
