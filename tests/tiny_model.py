"""A LLaMA of some thousand random weights with a tokenizer of bytes, and a folder that stands for the Hub beside it."""

from __future__ import annotations

import json
from pathlib import Path

WINDOW = 128
SOLUTIONS = ("push the door", "eat the door", "read the door", "sing to the door")


def save(folder: Path, seed: int = 0) -> Path:
    """The model and its tokenizer, as `save_pretrained` writes them."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = Tokenizer(models.BPE({text: n for n, text in enumerate(["<end>", *letters])}, []))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    words.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>").save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(letters) + 1,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=WINDOW,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def save_hub(folder: Path) -> Path:
    """PIQA with four questions."""
    (folder / "baber" / "piqa").mkdir(parents=True)
    rows = [
        {"goal": f"open a door {n}", "sol1": SOLUTIONS[n], "sol2": SOLUTIONS[n - 1], "label": n % 2} for n in range(4)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    for split in ("train", "validation"):
        (folder / "baber" / "piqa" / f"{split}.jsonl").write_text(lines)
    return folder
