"""Prove that mechanisms are what their papers say: every property of `harness.proofs.properties`, in every setting.

    python -m harness.prove softmax gla     a table a mechanism; exit code 1 when a property failed
    python -m harness.prove --all           every mechanism, a line each, in as many processes as asked for
    python -m harness.prove gla --record    write results/proofs/gla.json and exit 0: the site shows what failed

The same mechanism gives the same answers, but for the seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

import impls
from harness.errors import UserError, leave, suggest
from harness.parent import end_with_parent
from harness.proofs import record
from harness.proofs.record import Proof, Result

DETAILED = 3  # so many mechanisms get a table each
WIDTH = 180  # characters of a table in a log
STYLE = {"ok": "green", "failed": "bold red", "exempt": "yellow", "missing": "yellow", "not applicable": "dim"}


def prove(impl: str) -> Proof:
    """Ask every property of a mechanism in every setting that a paper runs, with one thread."""
    import torch

    from harness.proofs.cases import cases_by_impl
    from harness.proofs.properties import PROPERTIES, prove

    torch.set_num_threads(1)
    cases = cases_by_impl()[impl]
    asked = [(case, p) for p in PROPERTIES for case in (cases[:1] if p.once else cases)]
    return Proof.of(impl, {p.name: p.says for p in PROPERTIES}, [prove(case, p) for case, p in asked])


def prove_all(names: list[str], jobs: int) -> Iterator[Proof]:
    """As they are done. Raises UserError when a process is killed."""
    if jobs == 1 or len(names) == 1:
        yield from map(prove, names)
        return
    import torch  # once, before the processes part  # noqa: F401

    with ProcessPoolExecutor(min(jobs, len(names)), initializer=end_with_parent) as pool:
        try:
            for done in as_completed([pool.submit(prove, name) for name in names]):
                yield done.result()
        except BrokenProcessPool:
            raise UserError("a process was killed, perhaps for want of memory; try again with --jobs 1") from None


def shown(proofs: Iterable[Proof], total: int) -> list[Proof]:
    """The proofs in the order of names; meanwhile a bar on a terminal, a line each in a log."""
    from rich.progress import track

    if sys.stderr.isatty():
        from rich.console import Console

        return sorted(
            track(proofs, "proving", total=total, console=Console(stderr=True), transient=True), key=lambda p: p.impl
        )
    done = []
    for proof in proofs:
        done.append(proof)
        print(
            f"{len(done)} of {total}: {proof.impl} {proof.status}, {proof.seconds:.1f} s", file=sys.stderr, flush=True
        )
    return sorted(done, key=lambda p: p.impl)


def report(proofs: list[Proof]) -> None:
    """Tables on stdout: of each mechanism where they are few, else one line each; then every reason."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    for table in map(detail, proofs) if len(proofs) <= DETAILED else [overview(proofs)]:
        console.print(table)
    for proof in proofs:
        for result in proof.results:
            if result.status in ("failed", "exempt", "missing"):
                where = f"{proof.impl} ({result.setting}) {result.property}"
                console.print(f"{where}: {result.status}: {result.text}", style=STYLE[result.status], markup=False)


def detail(proof: Proof):
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"{proof.impl}: {proof.status}, {proof.seconds:.1f} s", title_justify="left")
    for heading in ("property", "", "measured", "at most", "settings", "what"):
        table.add_column(heading, no_wrap=heading in ("property", ""))
    for name, results in by_property(proof).items():
        first = record.worst(results)
        numbers = [f"{z:.3g}" if z is not None else "" for z in (first.number, first.tolerance)]
        status = f"[{STYLE[first.status]}]{first.status}[/]"
        table.add_row(name, status, *numbers, str(len(results)), escape(first.text))
    return table


def overview(proofs: list[Proof]):
    from rich.table import Table

    table = Table(title=f"{len(proofs)} mechanisms")
    for heading in ("mechanism", *STYLE, "settings", "seconds"):
        table.add_column(heading, justify="left" if heading == "mechanism" else "right", no_wrap=True)
    for proof in proofs:
        counts = {status: sum(result.status == status for result in proof.results) for status in STYLE}
        cells = [f"[{STYLE[status]}]{n}[/]" if n else "" for status, n in counts.items()]
        settings = {result.setting for result in proof.results} - {"all"}
        table.add_row(proof.impl, *cells, str(len(settings)), f"{proof.seconds:.1f}")
    return table


def by_property(proof: Proof) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for result in proof.results:
        found.setdefault(result.property, []).append(result)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m harness.prove", description="Prove that mechanisms are what their papers say."
    )
    parser.add_argument("impls", nargs="*", metavar="IMPL", help="mechanisms, as their files in impls/ are named")
    parser.add_argument("--all", action="store_true", help="every mechanism")
    parser.add_argument("--jobs", type=int, default=2, help="processes, one thread each (default: %(default)s)")
    parser.add_argument(
        "--record", action="store_true", help=f"write {record.FOLDER}/IMPL.json; exit 0 whatever it says"
    )
    given = parser.parse_args(arguments)
    if bool(given.impls) == given.all:
        parser.error("name the mechanisms to prove, or say --all")
    if given.jobs < 1:
        parser.error(f"--jobs {given.jobs}: at least one process is needed")
    names = impls.names() if given.all else sorted(set(given.impls))
    for name in names:
        if name not in impls.names():
            raise UserError(f"there is no mechanism {name!r} in impls/{suggest(name, impls.names())}")
    proofs = shown(prove_all(names, given.jobs), len(names))
    report(proofs)
    for proof in proofs if given.record else ():
        print(record.write(proof))
    return 0 if given.record else int(any(proof.status == "failed" for proof in proofs))


if __name__ == "__main__":
    leave(main)
