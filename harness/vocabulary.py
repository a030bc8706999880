"""The words of the synthetic tasks, one token each, and which key may stand beside which value.

A key and a value are a training pairing unless (key + value) is a multiple of 8: those 504 of 4,032 pairings are kept
for tests, so that what is recalled there was never seen side by side.
"""

from __future__ import annotations

import numpy as np

DOTS = 0  # noise that a question says to ignore
KEYS = range(1, 64)
VALUES = range(64, 128)
FILLERS = range(128, 192)
COMMON, FREQUENT = 192, 193  # questions: the common words of a list, the most frequent ones
VOCAB = 194
WORDS = range(VALUES.start, FILLERS.stop)  # of lists
TRAINING, EVALUATION = 0, 1  # the first word of a random stream: the two never meet
CLASSES = 8
ALLOWED = {TRAINING: len(VALUES) // CLASSES * (CLASSES - 1), EVALUATION: len(VALUES) // CLASSES}  # values of one key


def paired(keys: np.ndarray, draws: np.ndarray, part: int) -> np.ndarray:
    """The value that each draw, a number below ALLOWED[part], means for its key; one to one for each key."""
    if part == TRAINING:
        block, residue = draws // (CLASSES - 1), 1 + draws % (CLASSES - 1)
    else:
        block, residue = draws, np.zeros_like(draws)
    return VALUES.start + CLASSES * block + (residue - keys) % CLASSES


def spelled(token: int) -> str:
    """A word for people: k7, v12, f3, and what the others stand for."""
    for letter, words in (("k", KEYS), ("v", VALUES), ("f", FILLERS)):
        if token in words:
            return f"{letter}{token - words.start}"
    return {DOTS: "…", COMMON: "common?", FREQUENT: "frequent?"}[token]


def choose(rng: np.random.Generator, rows: int, among: int, count: int) -> np.ndarray:
    """`count` different numbers below `among` in each row, in random order."""
    return rng.random((rows, among)).argsort(axis=1)[:, :count]


def filler(rng: np.random.Generator, rows: int, length: int) -> np.ndarray:
    """Random filler words."""
    return rng.integers(FILLERS.start, FILLERS.stop, (rows, length))
