"""Reads small neutral specs, `paper` · `mixer` · `train` · `eval`, through the loaders of papers and profiles.

`rewrite` maps a neutral file, line by line, onto a paper and a profile in one text; `load` checks both and returns the
values under their neutral names. Whatever is not of the neutral form is left as it is, for the loaders to refuse.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from harness import config, spec
from harness.errors import UserError

CUT = "# ---- profile ----\n"
NEUTRAL = {"tasks": "train", "width": "dim"}  # what our messages call the neutral keys

PAPER = """year: 2024
authors: [A. Author]
summary: A summary.
scale_gap: None.
claims: [{id: c, quote: q, where: abstract, kind: untested, reason: r}]
"""
BLOCKS = {
    "mixer": "tasks:\n  lm:\n    length: 8\n    batch: 1\n    warmup: 0\n    valid_every: 1\n    valid_tokens: 8\n"
    "    model:\n      layers: 1\n      mlp: 8\n",
    "train": "",  # goes on below tasks.lm
    "eval": "suites:\n",
}


def rewrite(text: str) -> str:
    """A paper, the line CUT, and a profile, made of the lines of a neutral file."""
    paper, profile, section, seen = PAPER, "", "", set()
    for line in text.splitlines():
        header = re.fullmatch(r"(paper|mixer|train|eval):", line)
        if header:
            section = header[1]
            profile += "tasks:\n  lm:\n" if section in seen else BLOCKS.get(section, "")
            seen.add(section)
        elif not re.match(r"\s", line):
            section, profile = "", f"{profile}{line}\n"
        elif section == "paper":
            paper += line[2:] + "\n"
        elif section == "mixer" and (name := re.fullmatch(r"  name: (.*)", line)):
            paper += f"runs: {{{name[1]}: {{impl: softmax}}}}\n"
        elif section == "train" and (seed := re.fullmatch(r"  seed: (.*)", line)):
            profile = f"data: {{seed: {seed[1]}}}\n{profile}"
        else:
            profile += _profile_line(section, line)
    return paper + CUT + profile


def _profile_line(section: str, line: str) -> str:
    if section == "mixer":
        return "    " + line.replace("dim:", "width:") + "\n"
    if section == "train":
        return "  " + line + "\n"
    if section == "eval" and line.startswith("  tasks:"):
        return "  recall: {kinds: [mqar-4, mqar-8, needle-1]}\n"
    if section == "eval" and line.startswith("  lengths:"):
        return f"  loss: {{multiples: {line.partition(':')[2].strip()}}}\n"
    return line + "\n"


def load(path: str) -> dict[str, Any]:
    """The values of a rewritten file by their neutral names. Raises UserError in neutral words."""
    paper, _, profile = Path(path).read_text(encoding="utf-8").partition(CUT)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "example.yaml").write_text(paper, encoding="utf-8")
        (folder / "neutral.yaml").write_text(profile, encoding="utf-8")
        try:
            settings = config.load_profile("neutral", folder)
            known = spec.load_files([folder / "example.yaml"])["example"]
        except UserError as error:
            raise UserError(re.sub("|".join(NEUTRAL), lambda found: NEUTRAL[found[0]], str(error))) from None
    task = settings.task("lm")
    return {
        "title": known.title,
        "arxiv": known.arxiv,
        "name": next(iter(known.runs)),
        "dim": task.model.width,
        "heads": task.model.heads,
        "steps": task.steps,
        "lr": task.lr,
        "seed": settings.data.seed,
        "lengths": list(settings.suite("loss").multiples),
    }
