"""Selecting a few keys of the cache for each token. Wu et al. 2024, "TokenSelect: Efficient Long-Context Inference and
Length Extrapolation for LLMs via Dynamic Token-Level KV Cache Selection", arXiv:2411.02886.

    c_j = sum_h softmax_j(q_h . k_hj)        j in [first, t - local]: each head votes softly, with one vote in all
    y   = softmax attention over the `first` first tokens, the `k` tokens of highest c, and the last `local` ones

Votes are of keys and queries without positions and not divided by a root, as in the authors' code (pzs19/TokenSelect);
attention itself is, and rotates keys by their place among those selected, so that no distance exceeds the budget.
Selection cache: a query whose cosine to the last one that selected is at least `reuse` takes that one's selection.

Differs from the paper: every query selects for itself, for a chunk's mean query would see later tokens of the chunk;
while all candidates fit into `k` nothing is chosen, and a selection is kept from then on only. Votes are not pooled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from impls import ops
from impls.method import Method as Base
from impls.method import Metric
from impls.rewired import Calibration, Rewired, lottery, mixer_inputs, softmax_layers
from impls.softmax import Mixer

SELECTIONS = ("soft", "raw", "random", "window")
NONE = -1  # the place of a key that is not there


class State(NamedTuple):
    """Keys (not rotated) and values of all tokens, the query that selected last, and what it selected."""

    k_BHSK: Tensor
    v_BHSV: Tensor
    asked_BHK: Tensor
    top_Bk: Tensor


class Selecting(Rewired):
    def __init__(self, mixer: Mixer, cfg: Any, seed: int):
        super().__init__(mixer)
        self.rotate, self.rope = mixer.rope, False  # `project` leaves positions to `read`
        window = cfg.select == "window"
        self.select, self.first, self.reuse, self.seed = cfg.select, cfg.first, cfg.reuse, seed
        self.k, self.local = (0, cfg.local + cfg.k) if window else (cfg.k, cfg.local)

    def vote(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        """top_BTk: the k candidates of most votes, NONE where there are fewer; the queries are the last T of S."""
        T, S = q_BHTK.shape[2], k_BHSK.shape[2]
        far_TS = ops.causal(T, S, q_BHTK.device).tril(S - T - self.local)
        far_TS[:, : self.first] = False
        if self.select == "random":
            votes_BTS = lottery(range(S - T, S), S, self.seed, q_BHTK.device).expand(len(q_BHTK), T, S)
        else:
            s_BHTS = ops.scores(ops.wide(q_BHTK), ops.wide(k_BHSK), 1.0)
            if self.select == "soft":
                s_BHTS = s_BHTS.masked_fill(~far_TS, float("-inf")).softmax(dim=-1)
            votes_BTS = s_BHTS.sum(dim=1)
        votes_BTS = votes_BTS.masked_fill(~far_TS, float("-inf"))
        best_BTk, top_BTk = votes_BTS.topk(min(self.k, S), dim=-1)
        top_BTk = top_BTk.masked_fill(best_BTk == float("-inf"), NONE)
        return torch.nn.functional.pad(top_BTk, (0, self.k - top_BTk.shape[-1]), value=NONE)

    def keeps(self, cosine_B: Tensor, t: int) -> Tensor:
        """Whether the token at t takes the last selection over; not before there was something to choose."""
        return (cosine_B >= self.reuse) & (t > self.first + self.local + self.k)

    def asked(self, q_BHTK: Tensor) -> Tensor:
        """asked_BT: the place of the query whose selection each token reads."""
        u_BTD = normalize(ops.merge_heads(q_BHTK), dim=-1)
        cosine_BTS = u_BTD @ u_BTD.mT
        asked = [torch.zeros_like(cosine_BTS[:, 0, 0], dtype=torch.long)]
        for t in range(1, q_BHTK.shape[2]):
            cosine_B = cosine_BTS[:, t].gather(1, asked[-1][:, None])[:, 0]
            asked.append(torch.where(self.keeps(cosine_B, t), asked[-1], t))
        return torch.stack(asked, dim=1)

    def places(self, T: int, S: int, top_BTk: Tensor) -> Tensor:
        """place_BTN, rising, of the keys that the last T of S tokens read; NONE first, where there are fewer."""
        t_T1 = torch.arange(S - T, S, device=top_BTk.device)[:, None]
        first_TF = torch.arange(self.first, device=t_T1.device).expand(T, -1)
        local_TL = t_T1 - torch.arange(self.local, device=t_T1.device)
        always_TA = torch.cat(
            [first_TF.masked_fill(first_TF > t_T1, NONE), local_TL.masked_fill(local_TL < self.first, NONE)], dim=-1
        )
        return torch.cat([always_TA.expand(len(top_BTk), -1, -1), top_BTk], dim=-1).sort(dim=-1).values

    def weigh(self, q_BHTK: Tensor, k_BHSK: Tensor, top_BTk: Tensor) -> Tensor:
        """A_BHTS of the last T of S positions: keys not selected have none, the others stand at the places 0, 1, …"""
        (_, H, T, K), S = q_BHTK.shape, k_BHSK.shape[2]
        place_BTN = self.places(T, S, top_BTk)
        index_BHTN = place_BTN[:, None].expand(-1, H, -1, -1)
        index_BHMK = index_BHTN.clamp(min=0).flatten(2)[..., None].expand(-1, -1, -1, K)
        k_BHTNK = k_BHSK.gather(2, index_BHMK).unflatten(2, (T, -1))
        q_BHT1K = q_BHTK.unsqueeze(-2)
        if self.rotate:
            q_BHT1K, k_BHTNK = ops.rope(q_BHT1K, start=place_BTN.shape[-1] - 1), ops.rope(k_BHTNK)
        s_BHTN = ops.wide((q_BHT1K * self.scale * k_BHTNK).sum(dim=-1))
        A_BHTN = s_BHTN.masked_fill(index_BHTN == NONE, float("-inf")).softmax(dim=-1).to(q_BHTK.dtype)
        return A_BHTN.new_zeros(*A_BHTN.shape[:3], S).scatter_add_(-1, index_BHTN.clamp(min=0), A_BHTN)

    def selected(self, q_BHTK: Tensor, k_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """(asked_BT, top_BTk) of a whole row."""
        parts = self.cuts(q_BHTK.shape[2])
        top_BTk = torch.cat([self.vote(q_BHTK[:, :, a:b], k_BHTK[:, :, :b]) for a, b in parts], dim=1)
        asked_BT = self.asked(q_BHTK)
        return asked_BT, top_BTk.gather(1, asked_BT[..., None].expand(-1, -1, self.k))

    def cuts(self, T: int) -> list[tuple[int, int]]:
        """Some queries at a time."""
        return [(first, min(first + self.rows, T)) for first in range(0, T, self.rows)]

    def attention(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        """A_BHTS of a whole row, T = S."""
        return self.weigh(q_BHTK, k_BHSK, self.selected(q_BHTK, k_BHSK)[1])

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.prefill(x_BTD)[0]

    def prefill(self, x_BTD: Tensor) -> tuple[Tensor, State]:
        q, k, v = self.project(x_BTD)
        asked_BT, top_BTk = self.selected(q, k)
        y_BHTV = torch.cat(
            [self.weigh(q[:, :, a:b], k[:, :, :b], top_BTk[:, a:b]) @ v[:, :, :b] for a, b in self.cuts(q.shape[2])],
            dim=2,
        )
        asked_BHK = q.gather(2, asked_BT[:, None, -1:, None].expand(-1, self.heads, -1, self.head_dim))[:, :, 0]
        return self.out(ops.merge_heads(y_BHTV)), State(k, v, asked_BHK, top_BTk[:, -1])

    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        q, k_BH1K, v_BH1V = self.project(x_BD[:, None])
        k, v = torch.cat([state.k_BHSK, k_BH1K], dim=2), torch.cat([state.v_BHSV, v_BH1V], dim=2)
        now_BD, then_BD = (normalize(z.flatten(1), dim=-1) for z in (q, state.asked_BHK))
        keeps_B = self.keeps((now_BD * then_BD).sum(dim=-1), k.shape[2] - 1)
        top_Bk = torch.where(keeps_B[:, None], state.top_Bk, self.vote(q, k)[:, 0])
        y_BH1V = self.weigh(q, k, top_Bk[:, None]) @ v
        asked_BHK = torch.where(keeps_B[:, None, None], state.asked_BHK, q[:, :, 0])
        return self.out(ops.merge_heads(y_BH1V))[:, 0], State(k, v, asked_BHK, top_Bk)


class Method(Base):
    METRICS: ClassVar = {
        "keys_read": Metric(unit="share", better="lower", summary="of the keys before a token, at the training length"),
        "work": Metric(unit="share", better="lower", summary="of full attention's multiply-adds, votes among them"),
        "weight_kept": Metric(unit="share", better="higher", summary="of full attention's weight on the keys read"),
        "similarity": Metric(unit="cosine", better="none", summary="of consecutive queries, all heads together"),
        "selections_reused": Metric(unit="share", better="higher", summary="tokens that take a selection over"),
    }

    @dataclass(frozen=True, kw_only=True)
    class Config:
        first: int = 128  # n_init
        local: int = 512  # n_local, the token itself among them
        k: int = 2048  # tokens selected between the two
        reuse: float = 0.9  # cosine from which a selection is reused; above 1 never
        select: Literal["soft", "raw", "random", "window"] = "soft"  # raw: sums of products; window: k more local ones

        def __post_init__(self):
            if self.first < 0 or self.local < 1 or self.k < 0 or self.select not in SELECTIONS:
                raise ValueError(f"{self}: first and k are 0 or more, local 1 or more, select one of {SELECTIONS}")

    def choose(self, model: Any, calibration: Calibration, seed: int) -> dict[str, Any]:
        """Nothing is tuned; what the selection does to the calibration text is measured."""
        found = []
        with torch.no_grad():
            for (_, mixer), x_BTD in zip(softmax_layers(model), mixer_inputs(model, calibration), strict=True):
                found.append(measured(Selecting(mixer, self.config, seed), mixer, x_BTD))
        return {"seed": seed, "measured": {name: sum(f[name] for f in found) / len(found) for name in found[0]}}

    def install(self, model: Any, choices: dict[str, Any]) -> Any:
        for layer, mixer in list(softmax_layers(model)):
            model.layers[layer].mixer = Selecting(mixer, self.config, choices["seed"])
        return model

    def report(self, choices: dict[str, Any]) -> dict[str, float]:
        return choices["measured"]


def measured(layer: Selecting, mixer: Mixer, x_BTD: Tensor) -> dict[str, float]:
    """What METRICS name, of one layer."""
    q, k, _ = layer.project(x_BTD)
    T = x_BTD.shape[1]
    asked_BT, top_BTk = layer.selected(q, k)
    place_BTN = layer.places(T, T, top_BTk)
    read_BTS = torch.zeros(len(q), T, T + 1).scatter_(-1, place_BTN.cpu() + 1, 1.0)[..., 1:]
    u_BTD = normalize(ops.merge_heads(q), dim=-1)
    kept_BHT = (mixer.attention(*mixer.project(x_BTD)[:2]).cpu() * read_BTS[:, None]).sum(dim=-1)
    seen_T, asks_BT = torch.arange(1, T + 1), asked_BT.cpu() == torch.arange(T)
    votes_BT = asks_BT * (seen_T - layer.first - layer.local).clamp(min=0) * (layer.select in ("soft", "raw"))
    return {
        "keys_read": (read_BTS.sum(dim=-1) / seen_T).mean().item(),
        "work": ((read_BTS.sum(dim=-1) + votes_BT / 2) / seen_T).mean().item(),  # a vote sums no values
        "weight_kept": kept_BHT.mean().item(),
        "similarity": (u_BTD[:, 1:] * u_BTD[:, :-1]).sum(dim=-1).mean().item(),
        "selections_reused": (~asks_BT).float().mean().item(),
    }
