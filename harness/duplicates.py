"""Near-duplicate articles, found exactly and put into groups, so that no group is cut between splits.

Two articles are near-duplicates when they share at least a fifth of the runs of 8 words of the shorter one
(case and punctuation aside). Groups are the connected components of that relation.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np

RUN = 8  # words in a shingle
SHARE = 0.2  # of the shorter article's shingles
CROWD = 64  # a shingle in more articles than this is a formula of the genre: it links neighbours only
SAMPLED = 100_000_000  # characters above which only every k-th shingle, by its hash, is compared


def groups(texts: Sequence[str]) -> list[int]:
    """For each text the number of the first text of its group."""
    hash_N, owner_N = _shingles(texts)
    sizes = Counter(owner_N.tolist())
    parent = list(range(len(texts)))
    for (a, b), shared in _shared(hash_N, owner_N).items():
        if shared >= SHARE * min(sizes[a], sizes[b]):
            low, high = sorted((_root(parent, a), _root(parent, b)))
            parent[high] = low
    return [_root(parent, n) for n in range(len(texts))]


def _root(parent: list[int], n: int) -> int:
    while parent[n] != n:
        parent[n] = n = parent[parent[n]]
    return n


def _shingles(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """64-bit hashes of the distinct shingles of every text and whose they are, sorted by hash, then owner.

    A text shorter than a shingle counts as one, padded with zeros.
    """
    known: dict[str, int] = {}
    every = np.uint64(1 + sum(map(len, texts)) // SAMPLED)
    hashes, owners = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.int64)]
    for owner, text in enumerate(texts):
        words = [_word(known, word) for word in re.findall(r"\w+", text.lower())]
        padded = np.array(words + [0] * (RUN - len(words)), dtype=np.uint64)
        mixed = np.zeros(len(padded) - RUN + 1, dtype=np.uint64)
        for place in range(RUN):
            mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + padded[place : place + len(mixed)]
        mixed = np.unique(mixed)
        mixed = mixed[mixed % every == 0]
        hashes.append(mixed)
        owners.append(np.full(len(mixed), owner))
    hash_N, owner_N = np.concatenate(hashes), np.concatenate(owners)
    order_N = np.lexsort((owner_N, hash_N))
    return hash_N[order_N], owner_N[order_N]


def _word(known: dict[str, int], word: str) -> int:
    """A 64-bit number of the word that is the same in every process."""
    if word not in known:
        known[word] = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
    return known[word]


def _shared(hash_N: np.ndarray, owner_N: np.ndarray) -> Counter[tuple[int, int]]:
    """How many shingles each pair of texts has in common, for pairs that have any."""
    starts = np.flatnonzero(np.r_[True, hash_N[1:] != hash_N[:-1]]) if len(hash_N) else np.zeros(0, dtype=int)
    ends = np.r_[starts[1:], len(hash_N)]
    pairs: Counter[tuple[int, int]] = Counter()
    for place in np.flatnonzero(ends - starts > 1):
        owners = owner_N[starts[place] : ends[place]].tolist()
        pairs.update(combinations(owners, 2) if len(owners) <= CROWD else pairwise(owners))
    return pairs
