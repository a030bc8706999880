"""What a proof leaves on disk: `results/proofs/<impl>.json`, and all of them together in `results/proofs.json`.

python -m harness.proofs.record IMPL …     put the records of these mechanisms together
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from harness.closed import Closed
from harness.errors import UserError, leave
from harness.files import read_json, write_json

FOLDER = Path("results/proofs")
TOGETHER = Path("results/proofs.json")
RANK = ("failed", "exempt", "missing", "not applicable", "ok")  # the first of several answers that is found

Status = Literal["ok", "failed", "exempt", "missing", "not applicable"]


class Result(Closed):
    """The answer to one property of one mechanism in one setting."""

    property: str
    setting: str
    status: Status
    number: float | None  # what was measured; at most `tolerance` where there is one
    tolerance: float | None
    text: str  # what the number is, or the reason
    seconds: float


class Proof(Closed):
    """Every property of one mechanism, in each of its settings; `failed` when one is, with the first reason."""

    impl: str
    status: Literal["ok", "failed"]
    reason: str | None
    seconds: float
    asked: dict[str, str]  # each property, and the sentence that it is
    results: list[Result]

    @classmethod
    def of(cls, impl: str, asked: Mapping[str, str], results: Sequence[Result]) -> Proof:
        failed = [result for result in results if result.status == "failed"]
        first = f"{failed[0].property} ({failed[0].setting}): {failed[0].text}" if failed else None
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        seconds = round(sum(result.seconds for result in results), 3)
        return cls(
            impl=impl,
            status="failed" if failed else "ok",
            reason=first and first + more,
            seconds=seconds,
            asked=dict(asked),
            results=list(results),
        )


def worst(results: Iterable[Result]) -> Result:
    """Of the answers in several settings the one to show: the gravest, and of those the largest number."""
    return min(results, key=lambda result: (RANK.index(result.status), -(result.number or 0.0)))


def write(proof: Proof, folder: Path = FOLDER) -> Path:
    path = folder / f"{proof.impl}.json"
    write_json(path, proof.model_dump(mode="json"))
    return path


def read(path: Path) -> list[Proof]:
    """The proofs in a file of one or of all. Raises UserError when it is damaged."""
    try:
        content: Any = read_json(path)
        return [Proof.model_validate(item) for item in (content if isinstance(content, list) else [content])]
    except FileNotFoundError:
        raise UserError(f"{path} is not there; make it with python -m harness.prove --record") from None
    except (ValueError, ValidationError) as error:
        why = " ".join(str(error).split())[:120]
        raise UserError(f"{path} is damaged ({why}); remove it and run snakemake again") from None


def gather(impls: Iterable[str], folder: Path = FOLDER, out: Path = TOGETHER) -> list[Proof]:
    """Put the proofs of these mechanisms into one file."""
    proofs = [proof for impl in sorted(set(impls)) for proof in read(folder / f"{impl}.json")]
    write_json(out, [proof.model_dump(mode="json") for proof in proofs])
    return proofs


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m harness.proofs.record", description=f"Put records in {FOLDER} together in {TOGETHER}."
    )
    parser.add_argument("impls", nargs="*", metavar="IMPL")
    proofs = gather(parser.parse_args(arguments).impls)
    failed = [proof for proof in proofs if proof.status == "failed"]
    print(f"{TOGETHER}: {len(proofs)} mechanisms, {len(failed)} with a property that failed")
    for proof in failed:
        print(f"{proof.impl}: {proof.reason}")


if __name__ == "__main__":
    leave(main)
