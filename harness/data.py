"""The corpus: articles split into train, valid and test, as token ids with a manifest of where they are from.

    manifest.json     sources with licence and sha256, sizes of the splits, sha256 of every file below and of the rest
    tokenizer.json    byte-level BPE, trained on the training articles alone
    {train,valid,test}.npy     <end> article <end> article … <end>
    token_bytes.npy   bytes of text that each token spells, so that bits per byte are exact; <end> has none

They lie in a folder of results/data that is named by the settings (`harness.config.Data.folder`).
Which split an article is in is drawn by the seed and the title that leads its group of near-duplicates
(`harness.duplicates`): no article, and no near-copy of one, is in two splits.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness import duplicates, sources
from harness.config import Data, load_profile
from harness.errors import UserError, leave
from harness.files import dump_json, read_json, seal, sha256_file, write_atomic
from harness.sources import Article

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPLITS = ("train", "valid", "test")
END = "<|endoftext|>"
END_ID = 0
REMAKE = "make it with: python -m harness.data --profile <profile>"
BATCH = 1000  # articles encoded at a time
ALPHABET = 256  # a byte-level tokenizer begins with END and one token a byte


class Corpus:
    """The files of one folder, each checked against the manifest before it is used."""

    def __init__(self, folder: Path):
        self.folder = folder
        if not (folder / "manifest.json").is_file():
            raise UserError(f"{folder}/manifest.json is missing; {REMAKE}")
        if not made(folder):
            raise UserError(f"{folder}/manifest.json was made by an earlier version; delete {folder} and {REMAKE}")
        try:
            self.manifest: dict[str, Any] = read_json(folder / "manifest.json")
            self.vocab: int = self.manifest["tokenizer"]["vocab"]
            self.digest = sha256_file(folder / "manifest.json")
            self.token_bytes_V = np.load(self.file("token_bytes.npy"), allow_pickle=False)
            rest = {key: value for key, value in self.manifest.items() if key != "seal"}
            whole = self.manifest["seal"] == seal(rest)
        except (ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            raise UserError(f"{folder}/manifest.json is damaged; delete {folder} and {REMAKE}")

    def file(self, name: str) -> Path:
        """The path of a file that is as the manifest says. Raises UserError, naming it, when it is not."""
        path = self.folder / name
        if not path.is_file() or sha256_file(path) != self.manifest["files"][name]:
            raise UserError(
                f"{path} is not the file that {self.folder}/manifest.json describes; delete {self.folder} and {REMAKE}"
            )
        return path

    def tokens(self, split: str) -> np.ndarray:
        """ids_N of a split: <end> article <end> … <end>."""
        return np.load(self.file(f"{split}.npy"), allow_pickle=False)

    def tokenizer(self) -> Tokenizer:
        """The tokenizer; what it encodes holds no <end>, not even where the text spells it."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.file("tokenizer.json")))
        tokenizer.encode_special_tokens = True
        return tokenizer


def made(folder: Path) -> bool:
    """Whether a corpus of this version lies there, damaged or not; earlier ones have no seal."""
    try:
        manifest = read_json(folder / "manifest.json")
    except FileNotFoundError:
        return False
    except ValueError:
        return True
    return not isinstance(manifest, dict) or "seal" in manifest


def split(articles: list[Article], settings: Data) -> dict[str, list[Article]]:
    """The articles of each split, in an order drawn by the seed. Raises UserError when a split would be empty."""
    leader_of = duplicates.groups([article.text for article in articles])
    parts: dict[str, list[Article]] = {name: [] for name in SPLITS}
    for n in sorted(range(len(articles)), key=lambda n: (_draw("order", articles[n], settings), n)):
        u = _draw("split", articles[leader_of[n]], settings)
        name = "test" if u < settings.test else "valid" if u < settings.test + settings.valid else "train"
        parts[name].append(articles[n])
    for name, part in parts.items():
        if not part:
            raise UserError(f"no article fell to the {name} split: {len(articles)} are too few; raise data.{name}")
    return parts


def _draw(purpose: str, article: Article, settings: Data) -> float:
    """A number in [0, 1) that depends on the seed and the title alone."""
    text = f"{purpose}\0{settings.seed}\0{article.title}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64


def limit(articles: list[Article], settings: Data) -> list[Article]:
    """A sample of whole articles, drawn by the seed, of at most `characters`; all of them when that is None."""
    if settings.characters is None:
        return articles
    order = sorted(range(len(articles)), key=lambda n: (_draw("sample", articles[n], settings), n))
    ends = np.cumsum([len(articles[n].text) for n in order])
    kept = sorted(order[: int(np.searchsorted(ends, settings.characters, side="right"))])
    return [articles[n] for n in kept]


def train_tokenizer(texts: Iterable[str], settings: Data) -> Tokenizer:
    """Byte-level BPE (arXiv:1508.07909, on bytes); `bytes` is the same with no merges."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=ALPHABET + 1 if settings.tokenizer == "bytes" else settings.vocab,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.encode_special_tokens = True  # a text that spells <end> is text
    return tokenizer


def token_bytes(tokenizer: Tokenizer) -> np.ndarray:
    """Bytes of text that each token spells. The byte-level alphabet writes one letter a byte; <end> is no text."""
    tokens = [tokenizer.id_to_token(n) for n in range(tokenizer.get_vocab_size())]
    return np.array([0 if token == END else len(str(token)) for token in tokens], dtype=np.uint16)


def encode(articles: list[Article], tokenizer: Tokenizer) -> np.ndarray:
    """<end> article <end> article … <end>, in the narrowest type that holds the vocabulary."""
    dtype = np.uint16 if tokenizer.get_vocab_size() <= 2**16 else np.uint32
    parts = [np.array([END_ID], dtype=dtype)]
    for first in range(0, len(articles), BATCH):
        texts = [article.text for article in articles[first : first + BATCH]]
        for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False):
            parts.append(np.array([*encoding.ids, END_ID], dtype=dtype))
    return np.concatenate(parts)


def make(settings: Data, folder: Path, say: Callable[[str], None], hub: str | None = None) -> None:
    """Write the corpus that `settings` ask for into `folder`; the manifest last. `hub` stands for the Hub."""
    source = sources.read(settings, say, hub)
    articles = limit(source.articles, settings)
    say(f"{source.record['name']}: {len(articles):,} articles, {sum(len(a.text) for a in articles):,} characters")
    parts = split(articles, settings)
    tokenizer = train_tokenizer((article.text for article in parts["train"]), settings)
    say(f"tokenizer of {tokenizer.get_vocab_size():,} tokens trained on {len(parts['train']):,} articles")
    bytes_V = token_bytes(tokenizer)
    contents = {"tokenizer.json": tokenizer.to_str(pretty=True).encode(), "token_bytes.npy": _npy(bytes_V)}
    sizes = {}
    for name, part in parts.items():
        ids_N = encode(part, tokenizer)
        contents[f"{name}.npy"] = _npy(ids_N)
        sizes[name] = {"articles": len(part), "bytes": int(bytes_V[ids_N].sum(dtype=np.int64)), "tokens": len(ids_N)}
        say(f"{name}: {sizes[name]['articles']:,} articles, {sizes[name]['bytes']:,} bytes, {len(ids_N):,} tokens")
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    for name, content in contents.items():
        write_atomic(folder / name, content)
    manifest = {
        "sources": [source.record],
        "settings": settings.model_dump(),
        "splits": sizes,
        "tokenizer": {
            "kind": settings.tokenizer,
            "vocab": tokenizer.get_vocab_size(),
            "end_of_text": END_ID,
            "sha256": digests["tokenizer.json"],
        },
        "files": digests,
    }
    write_atomic(folder / "manifest.json", dump_json(manifest | {"seal": seal(manifest)}))


def _npy(array: np.ndarray) -> bytes:
    buffer = BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.data", description="Make the corpus of a profile.")
    parser.add_argument("--profile", required=True, help="a file of config/profiles, without .yaml")
    parser.add_argument("--out", type=Path, help="folder to write, instead of the one that the settings name")
    parser.add_argument("--hub", help="a folder that stands for the Hugging Face Hub")
    given = parser.parse_args()
    start = time.perf_counter()

    def say(line: str) -> None:
        print(f"[{time.perf_counter() - start:6.1f} s] {line}", file=sys.stderr, flush=True)

    settings = load_profile(given.profile).data
    make(settings, given.out or settings.folder, say, given.hub)


if __name__ == "__main__":
    leave(main)
