"""What the heads of a trained model attend to, and the tokens there: of a small one trained here, or one in a folder.

Both give, by the number L of tokens that were read, (l_RL, x_RLD): the scores of the last token's queries, one a row,
taken as the logarithms of the attention weights, and the inputs of their layer scaled to length one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from impls import softmax
from impls.adam import Adam
from impls.study import generator

WIDTH, LAYERS, HEADS, VOCAB, BATCH, LR = 64, 2, 4, 32, 16, 0.003
Layers = Iterable[tuple[Tensor, Tensor]]  # (A_BHTS, x_BTD) of each


class Copier(nn.Module):
    """A decoder of attention alone, softmax of this catalogue, with rotary positions."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS))
        self.mixers = nn.ModuleList(softmax.Mixer(WIDTH, softmax.Mixer.Config(heads=HEADS)) for _ in range(LAYERS))

    def forward(self, ids_BT: Tensor) -> Tensor:
        """logits_BTV."""
        x_BTD = self.embed(ids_BT)
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            x_BTD = x_BTD + mixer(norm(x_BTD))
        return self.out(x_BTD)

    @torch.no_grad()
    def layers(self, ids_BT: Tensor) -> Layers:
        """Weights and inputs of each layer."""
        x_BTD = self.embed(ids_BT)
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            z_BTD = norm(x_BTD)
            assert isinstance(mixer, softmax.Mixer)
            yield mixer.attention(*mixer.project(z_BTD)[:2]), z_BTD
            x_BTD = x_BTD + mixer(z_BTD)


def twice(rows: int, length: int, draws: torch.Generator, device: str) -> Tensor:
    """ids_BT: half a row of drawn tokens, then the same again."""
    half_BT = torch.randint(VOCAB, (rows, length // 2), generator=draws)
    return torch.cat([half_BT, half_BT], dim=1).to(device)


def copier(steps: int, rows: int, lengths: Sequence[int], seed: int, device: str) -> dict[int, tuple[Tensor, Tensor]]:
    """Of a `Copier` that learnt for so many steps to go on with the second half of `twice`, of the longest length."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(seed, "copier").initial_seed())
        model = Copier().to(device)
    draws, T, adam = generator(seed, "copies"), max(lengths), Adam(list(model.parameters()), LR, steps)
    for _ in range(steps):
        ids_BT = twice(BATCH, T, draws, device)
        adam.step(cross_entropy(model(ids_BT)[:, T // 2 - 1 : -1].flatten(0, 1), ids_BT[:, T // 2 :].flatten()))
    batch = -(-rows // (LAYERS * HEADS))
    return {length: last(model.layers(twice(batch, length, draws, device))) for length in lengths}


@torch.no_grad()
def stored(
    folder: str, rows: int, lengths: Sequence[int], draws: torch.Generator, device: str
) -> dict[int, tuple[Tensor, Tensor]]:
    """Of a causal model in a folder as the Hub has them, on texts that it writes itself, cut to each length.

    Only weights in safetensors are read, no code of the folder is run and nothing fetched. Raises OSError where there
    is no model.
    """
    from transformers import AutoModelForCausalLM

    safely: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False, "local_files_only": True}
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype="float32", attn_implementation="eager", **safely)
    model, config = model.to(device).eval(), model.config.get_text_config()
    batch = -(-rows // (config.num_hidden_layers * config.num_attention_heads))
    first = next((token for token in (config.bos_token_id, config.eos_token_id) if token is not None), 0)
    ids_BT = torch.full((batch, 1), first, device=device)
    while ids_BT.shape[1] < max(lengths):
        next_BV = model(ids_BT).logits[:, -1].softmax(dim=-1).cpu()
        ids_BT = torch.cat([ids_BT, next_BV.multinomial(1, generator=draws).to(device)], dim=1)
    found = {}
    for length in lengths:
        told = model(ids_BT[:, :length], output_attentions=True, output_hidden_states=True)
        found[length] = last(zip(told.attentions, told.hidden_states[:-1], strict=True))
    return found


def last(layers: Layers) -> tuple[Tensor, Tensor]:
    """(l_RL, x_RLD): a row for each sequence, layer and head."""
    both = [(A_BHTS[:, :, -1].flatten(0, 1), x.repeat_interleave(A_BHTS.shape[1], dim=0)) for A_BHTS, x in layers]
    A_RL, x_RLD = (torch.cat(z) for z in zip(*both, strict=True))
    return A_RL.clamp(min=1e-30).log(), normalize(x_RLD, dim=-1)
