"""RULER (Hsieh et al. 2024, arXiv:2404.06654): 13 tasks on text of a chosen length, from a generator of our own.

    needles.py     niah_*: facts hidden in text           fill.py      as much filler as a length holds, to the token
    variables.py   vt: a chain of assignments             material.py  texts and questions to draw from
    frequency.py   cwe, fwe: a list's frequent words      score.py     string match, floors, effective length
    questions.py   qa_*: documents that answer            store.py     generated data on disk
    tasks.py       the 13 of them by name                 micro.py     the same on rows of single-token words

Templates, answer prefixes, budgets and scoring are RULER's (NVIDIA/RULER@c3f5e3b4, scripts/data/synthetic/constants.py
and scripts/eval/synthetic/constants.py), the shape of the tasks is that of its `synthetic.yaml`; both as
lm-evaluation-harness 0.4.13 keeps them in lm_eval/tasks/ruler. Otherwise than there:

- A sample depends on (task, length, seed, its place) alone; the tokenizer decides only how much filler fits.
- prompt, answer prefix and answer budget together fit the length, for every sample; what is left over is stored.
- The budget is RULER's where that is at most a quarter of the length, else a quarter, and never less than the answer.
- Keys of one prompt differ by construction. Solved examples (vt, cwe) are shown where they take at most a quarter.
- A length that cannot hold the task is refused with the shortest one that can.
"""

from __future__ import annotations

from harness.errors import suggest

TASKS = (
    "niah_single_1",
    "niah_single_2",
    "niah_single_3",
    "niah_multikey_1",
    "niah_multikey_2",
    "niah_multikey_3",
    "niah_multivalue",
    "niah_multiquery",
    "vt",
    "cwe",
    "fwe",
    "qa_1",
    "qa_2",
)
ANY = ("qa_1", "qa_2")  # one reference is enough; elsewhere each counts
SHORTEST = 128  # tokens


def known(tasks: tuple[str, ...]) -> tuple[str, ...]:
    """The names themselves if each is a task's. Raises ValueError with the nearest name otherwise."""
    for name in tasks:
        if name not in TASKS:
            raise ValueError(f"{name!r} is no task of RULER{suggest(name, TASKS)}")
    return tasks
