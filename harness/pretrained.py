"""Runs that start from the Hub instead of from training: `runs: {base: {hf: EleutherAI/pythia-70m}}` in a paper.

    python -m harness.pretrained pythia-70m-1a2b3c4d --task lm --seed 0 --hf EleutherAI/pythia-70m

writes the `run.json` that a training would leave, with what is measured and where it is from; nothing is trained.
Only weights in safetensors are read and no code of the repository is run. `hf` is an id of the Hub or a folder.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from functools import cache
from typing import Any

from harness import hub, provenance, records
from harness.arguments import seed
from harness.closed import Closed, Count, Text
from harness.errors import UserError, leave
from harness.files import write_json


class Settings(Closed):
    """What stands for the settings of a training."""

    hf: Text
    length: Count  # tokens that the model reads at most


def load(name: str, where: str | None, device: str = "cpu") -> Any:
    """The model in fp32 and evaluation mode. Raises UserError when there is none that can be read safely."""
    from transformers import AutoModelForCausalLM

    model = _fetch(AutoModelForCausalLM, name, where, use_safetensors=True, dtype="float32")
    return model.to(device).eval()


@cache
def tokenizer(name: str, where: str | None) -> Any:
    """Its tokenizer. Raises UserError likewise."""
    from transformers import AutoTokenizer

    return _fetch(AutoTokenizer, name, where)


def _fetch(kind: Any, name: str, where: str | None, **options: Any) -> Any:
    try:
        return kind.from_pretrained(hub.place(name, where) or name, trust_remote_code=False, **options)
    except (OSError, ValueError) as error:
        (first, *_) = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"hf: {name} cannot be read: {first}") from None


def describe(name: str, where: str | None) -> dict[str, Any]:
    """Settings and provenance of a model: `digest` is of its weights' names and values."""
    model = load(name, where)
    config = model.config.get_text_config()
    length = getattr(config, "max_position_embeddings", None)
    if length is None:
        raise UserError(f"hf: {name} does not say how many tokens it reads (max_position_embeddings)")
    digest = hashlib.sha256()
    for key, weight in sorted(model.state_dict().items()):
        digest.update(key.encode() + weight.contiguous().cpu().numpy().tobytes())
    return {
        "settings": Settings(hf=name, length=length).model_dump(),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "revision": getattr(config, "_commit_hash", None),
        "digest": digest.hexdigest(),
    }


def record(run: str, impl: str, task: str, seed: int, name: str, where: str | None) -> dict[str, Any]:
    """The content of run.json; `failed`, with the reason, where the model cannot be read."""
    identity = {"run": run, "impl": impl, "task": task, "seed": seed, "hf": name, "commit": provenance.commit()}
    identity["seconds"] = 0.0  # of training
    try:
        return identity | {"status": "ok", "reason": None} | describe(name, where)
    except UserError as error:
        return identity | {"status": "failed", "reason": str(error)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.pretrained", description="Take a model from the Hub.")
    parser.add_argument("run", help="its name, a folder of results/runs")
    parser.add_argument("--impl", required=True, help="the name that stands for its mechanism")
    parser.add_argument("--task", required=True, help="the task whose models it is measured beside")
    parser.add_argument("--seed", required=True, type=seed, help="of the record; nothing is drawn")
    parser.add_argument("--hf", required=True, help="an id of the Hub, or a folder")
    parser.add_argument("--hub", help="a folder that stands for the Hub")
    given = parser.parse_args()
    found = record(given.run, given.impl, given.task, given.seed, given.hf, given.hub)
    path = records.folder(given.run, given.task, given.seed) / "run.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, found)
    print(f"{path}: {found['status']}" + (f": {found['reason']}" if found["reason"] else ""), file=sys.stderr)


if __name__ == "__main__":
    leave(main)
