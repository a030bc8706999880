"""Inside training: loss and optimizer against torch's, averages, schedules, and resuming at any cut."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from harness import state
from harness.fit import Diverged, Fit, Point
from harness.loss import CHUNK, HeadLoss, bits_per_byte, mean_or_none, token_mean, total_nll
from harness.model import Shape, build, param_groups
from harness.optim import AdamW, learning_rate
from harness.tasks import IGNORE, Batch, HeldOut, shift
from harness.tasks.recall import Settings, Task
from tests.conftest import SHARED
from tests.test_pitfalls import script  # noqa: F401  (a fixture)

SHAPE = Shape(impl="softmax", args={"heads": 2}, vocab=192, width=16, layers=1, mlp=16, conv=4)


def settings(**changes: Any) -> Settings:
    model = {"width": 16, "layers": 1, "heads": 2, "mlp": 16}
    given = {"length": 32, "batch": 4, "steps": 13, "lr": 6e-3, "warmup": 3, "kinds": ["mqar-4", "needle-2", "mqar-8"]}
    return Settings.model_validate({"model": model, **given, **changes})


def fit(task: Any = None, **changes: Any) -> Fit:
    chosen = settings(**changes)
    return Fit(build(SHAPE, seed=0), task or Task(chosen, 0), chosen, 0, "cpu")


def never(_: int) -> bool:
    return False


def nothing(_: Point) -> None:
    return None


# -- the loss


@pytest.mark.parametrize("rows", [1, CHUNK - 1, CHUNK, 2 * CHUNK + 5])
def test_the_head_loss_and_its_gradients_are_those_of_cross_entropy(rows: int):
    generator = torch.Generator().manual_seed(0)
    x_ND = torch.randn(rows, 8, dtype=torch.double, generator=generator).requires_grad_()
    E_VD = torch.randn(50, 8, dtype=torch.double, generator=generator).requires_grad_()
    target_N = torch.randint(50, (rows,), generator=generator)
    mine = HeadLoss.apply(x_ND, E_VD, target_N)
    assert isinstance(mine, Tensor)
    mine_grads = torch.autograd.grad(3.0 * mine, (x_ND, E_VD))
    torchs = cross_entropy(x_ND @ E_VD.T, target_N, reduction="sum")
    torch.testing.assert_close(mine, torchs, rtol=1e-12, atol=1e-12)
    for a, b in zip(mine_grads, torch.autograd.grad(3.0 * torchs, (x_ND, E_VD)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_the_head_loss_survives_large_logits():
    x_ND = torch.full((2, 4), 1e4, requires_grad=True)
    loss = HeadLoss.apply(x_ND, torch.eye(4) * torch.tensor([1.0, -1.0, 1.0, 1.0]), torch.tensor([0, 1]))
    assert isinstance(loss, Tensor)
    assert loss.item() == pytest.approx(2 * math.log(3) + 2e4)


def test_the_head_is_differentiated_once_alone():
    """Its gradients are made on the way forward, so that a second derivative would be silently zero."""
    x_ND = torch.randn(3, 4, requires_grad=True)
    loss = HeadLoss.apply(x_ND, torch.eye(4), torch.tensor([0, 1, 2]))
    assert isinstance(loss, Tensor)
    (grad_ND,) = torch.autograd.grad(loss.square(), x_ND, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad_ND.sum().backward()


def test_ignored_targets_count_neither_above_nor_below():
    model = build(SHAPE, seed=0)
    ids_BT = torch.randint(192, (3, 9), generator=torch.Generator().manual_seed(0))
    targets_BT = ids_BT.roll(-1, 1)
    some_BT = targets_BT.masked_fill(torch.arange(9) % 3 > 0, IGNORE)
    want = cross_entropy(model(ids_BT).flatten(0, 1), some_BT.flatten(), reduction="sum", ignore_index=IGNORE)
    torch.testing.assert_close(total_nll(model, ids_BT, some_BT), want)


def test_token_means_weigh_by_tokens_and_hide_no_nan():
    assert token_mean([(20.0, 10), (100.0, 100)]) == pytest.approx(120 / 110)
    assert token_mean([(20.0, 10), (0.0, 0)]) == 2.0
    assert token_mean([]) is None
    nan = token_mean([(20.0, 10), (math.nan, 5)])
    assert nan is not None
    assert math.isnan(nan)


@pytest.mark.parametrize("losses", [[2.0, math.nan, 1.0], [2.0, math.inf], []])
def test_no_mean_is_made_around_what_is_not_finite(losses: list[float]):
    assert mean_or_none(losses) is None
    assert mean_or_none([2.0, 1.0]) == 1.5


def test_bits_per_byte_are_nats_over_bytes_and_leave_mode_and_generator_alone():
    model = build(SHAPE, seed=0).train()
    inputs_BT, targets_BT = shift(np.arange(34).reshape(2, 17))
    before = torch.get_rng_state()
    bits = bits_per_byte(model, [HeldOut(inputs_BT, targets_BT, 50), HeldOut(inputs_BT[:1], targets_BT[:1], 30)], "cpu")
    nats = [
        cross_entropy(model(torch.from_numpy(i)).flatten(0, 1), torch.from_numpy(t).flatten(), reduction="sum").item()
        for i, t in ((inputs_BT, targets_BT), (inputs_BT[:1], targets_BT[:1]))
    ]
    assert bits == pytest.approx(sum(nats) / math.log(2) / 80, rel=1e-6)
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert bits_per_byte(model, [], "cpu") is None


# -- the optimizer


def test_adamw_is_torchs_bit_for_bit():
    chosen = settings(weight_decay=0.1, beta1=0.8, beta2=0.95, eps=1e-6)
    mine, theirs = build(SHAPE, seed=0), build(SHAPE, seed=0)
    optimizer = AdamW(param_groups(mine, 0.1), chosen)
    reference = torch.optim.AdamW(param_groups(theirs, 0.1), lr=1.0, betas=(0.8, 0.95), eps=1e-6, fused=True)
    for step in range(20):
        ids_BT = torch.randint(192, (2, 12), generator=torch.Generator().manual_seed(step))
        for model in (mine, theirs):
            total_nll(model, ids_BT, ids_BT.roll(-1, 1)).backward()
        norm = optimizer.clip(0.5)
        assert norm == pytest.approx(torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5).item(), rel=1e-5)
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert a.grad is not None
            assert b.grad is not None
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-8)
            b.grad.copy_(a.grad)  # the norms are summed in another order; the step itself is compared
        for group in reference.param_groups:
            group["lr"] = 1e-2 / (step + 1)
        reference.step()
        optimizer.step(1e-2 / (step + 1))
        reference.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), theirs.parameters(), strict=True))


def test_gradients_are_clipped_to_the_limit_and_no_further():
    model = build(SHAPE, seed=0)
    optimizer = AdamW(param_groups(model, 0.0), settings())
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    norm = math.sqrt(sum(p.numel() for p in model.parameters()))
    assert optimizer.clip(2.0) == pytest.approx(norm)
    assert optimizer.clip(2.0) == pytest.approx(2.0)
    assert optimizer.clip(50.0) == pytest.approx(2.0)


def test_the_learning_rate_warms_up_and_falls_to_its_floor():
    chosen = settings(lr=1.0, warmup=4, steps=24, floor=0.1)
    rates = [learning_rate(step, chosen) for step in range(24)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[13] == pytest.approx(0.55)
    assert rates[-1] == pytest.approx(0.1)
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert learning_rate(0, settings(warmup=0, steps=1, lr=1.0, floor=0.1)) == pytest.approx(0.1)


def test_micro_batches_give_the_gradient_of_the_whole_batch():
    whole, parts = fit(), fit(micro_batch=1)
    batch = Task(settings(), 0).batch(1)
    uneven = Batch(batch.inputs_BT, np.where(np.arange(len(batch.inputs_BT))[:, None] == 0, IGNORE, batch.targets_BT))
    for given in (batch, uneven):
        assert whole._backward(given) == pytest.approx(parts._backward(given), rel=1e-5)
        for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
            assert a.grad is not None
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-6)
            a.grad = b.grad = None


# -- steps


class Broken:
    """A task whose model is given a weight that is not a number before one of its steps."""

    vocab, digest, bytes_per_token = 192, "", None

    def __init__(self, at: int, name: str):
        self.at, self.name, self.inner = at, name, Task(settings(), 0)
        self.fit: Fit | None = None

    def batch(self, step: int) -> Batch:
        if step == self.at and self.fit is not None:
            with torch.no_grad():
                dict(self.fit.model.named_parameters())[self.name][0] = math.inf
        return self.inner.batch(step)

    def held_out(self) -> Any:
        return iter(())


def test_a_loss_that_is_no_number_ends_the_run_at_its_step():
    task = Broken(4, "layers.0.mlp.outer.weight")
    task.fit = made = fit(task)
    with pytest.raises(Diverged, match=r"the loss is (nan|inf) at step 5"):
        made.run(never, nothing)
    assert made.steps_done == 4
    assert len(made.curve) == 4


def test_a_gradient_that_is_no_number_ends_the_run_before_it_is_applied(monkeypatch: pytest.MonkeyPatch):
    made = fit()
    made.run(lambda done: done == 3, nothing)
    before = [p.clone() for p in made.model.parameters()]
    backward = made._backward

    def spoiled(batch: Batch) -> float:
        loss = backward(batch)
        next(made.model.parameters()).grad[0] = math.nan  # pyright: ignore[reportOptionalSubscript]
        return loss

    monkeypatch.setattr(made, "_backward", spoiled)
    with pytest.raises(Diverged, match="the gradient's norm is nan at step 4"):
        made.run(never, nothing)
    assert all(torch.equal(a, b) for a, b in zip(made.model.parameters(), before, strict=True))


def test_training_learns():
    made = fit(steps=150, kinds=["mqar-2"], length=8, batch=32, lr=2e-2, warmup=10)
    losses: list[float] = []
    made.run(never, lambda point: losses.append(point.loss))
    assert losses[0] == pytest.approx(math.log(192), abs=1)
    assert losses[-1] < 0.8 * losses[0]
    final = made.final_loss()
    assert final is not None
    assert final == pytest.approx(sum(losses[-15:]) / 15)


def test_bfloat16_autocast_trains_weights_of_float32():
    made = fit(steps=40, kinds=["mqar-2"], length=8, batch=32, lr=2e-2, warmup=4, precision="bf16")
    losses: list[float] = []
    made.run(never, lambda point: losses.append(point.loss))
    assert losses[-1] < 0.9 * losses[0]
    assert {p.dtype for p in made.model.parameters()} == {torch.float32}
    exact = fit(steps=40, kinds=["mqar-2"], length=8, batch=32, lr=2e-2, warmup=4)
    assert losses[0] == pytest.approx(exact._backward(exact.task.batch(0)), rel=2e-2)


def test_the_curve_is_thinned_and_keeps_the_last_step():
    made = fit(curve_every=5)
    made.run(never, nothing)
    assert [line.split(",")[0] for line in made.curve] == [f'{{"step": {step}' for step in (5, 10, 13)]


# -- resuming


def train(steps: int, folder: str, stop_at: int | None = None) -> dict[str, Any]:
    """What the script of public failure reports asks of a trainer."""
    made, path = fit(steps=steps), Path(folder) / "state.pt"
    saved = state.load(path, "print", print)
    if saved is not None:
        made.restore(saved)
    losses: dict[int, float] = {}
    batches: dict[int, Any] = {}

    def after(point: Point) -> None:
        losses[point.step] = point.loss
        batches[point.step] = made.task.batch(point.step - 1).inputs_BT.tolist()

    made.run(lambda done: done == stop_at, after)
    state.save(path, "print", made.state())
    params = b"".join(p.detach().numpy().tobytes() for p in made.model.parameters())
    return {"losses": losses, "batches": batches, "params": hashlib.sha256(params).hexdigest(), "curve": made.curve}


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no failure reports at {SHARED}")
def test_resuming_against_public_failure_reports(script):  # noqa: F811
    script("t01_resume_is_identical").check(train)


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no failure reports at {SHARED}")
def test_losses_against_public_failure_reports(script):  # noqa: F811
    class Losses:
        mean_loss = staticmethod(token_mean)

        @staticmethod
        def summarise(losses: list[float]) -> dict[str, Any]:
            mean = mean_or_none(losses)
            return {"ok": mean is not None, "mean": mean}

        @staticmethod
        def next_token_loss(logits_BTV: Tensor, ids_BT: Tensor, pad: int) -> float | None:
            _, targets_BT = shift(ids_BT.numpy())
            kept_BT = torch.from_numpy(targets_BT) != pad
            x_ND, target_N = logits_BTV[:, :-1][kept_BT], torch.from_numpy(targets_BT)[kept_BT]
            total = HeadLoss.apply(x_ND, torch.eye(logits_BTV.shape[-1]), target_N)
            return token_mean([(float(total), len(target_N))])  # pyright: ignore[reportArgumentType]

    script("t02_loss_aggregation").check(Losses)


def test_any_cuts_give_the_same_weights_and_the_same_curve(tmp_path: Path):
    whole = train(13, str(tmp_path / "whole"))
    for cuts in ([0], [1], [12], random.Random(0).sample(range(13), 2)):
        folder = str(tmp_path / "-".join(map(str, cuts)))
        for cut in sorted(cuts):
            train(13, folder, stop_at=cut)
            torch.rand(5)  # a new process has another history
        again = train(13, folder)
        assert again["params"] == whole["params"]
        assert again["curve"] == whole["curve"]


def test_a_mechanism_that_draws_numbers_in_training_resumes_with_the_same_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from impls import softmax

    forward = softmax.Mixer.forward
    monkeypatch.setattr(softmax.Mixer, "forward", lambda self, x: forward(self, x) * (1 + 0.1 * torch.rand(1)))
    whole = train(9, str(tmp_path / "whole"))
    train(9, str(tmp_path / "cut"), stop_at=4)
    torch.rand(5)
    assert train(9, str(tmp_path / "cut"))["params"] == whole["params"]


@pytest.mark.parametrize("spoil", ["flip", "short", "empty", "text", "header"])
def test_a_damaged_state_is_refused_with_its_name(tmp_path: Path, spoil: str):
    path, said = tmp_path / "state.pt", []
    state.save(path, "print", {"tensor": torch.arange(1000.0), "step": 3})
    content = path.read_bytes()
    assert state.load(path, "print", said.append) is not None
    for place in random.Random(0).sample(range(len(content)), 20) if spoil == "flip" else [0]:
        flipped = content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
        forms = {"flip": flipped, "short": content[:-1], "empty": b"", "text": b"x" * 99, "header": content[:60]}
        path.write_bytes(forms[spoil])
        assert state.load(path, "print", said.append) is None
        assert said.pop() == f"{path} is damaged, so it is not used: training starts from step 0"


def test_a_state_of_another_run_is_refused_and_a_missing_one_is_silent(tmp_path: Path):
    said: list[str] = []
    assert state.load(tmp_path / "state.pt", "print", said.append) is None
    assert not said
    state.save(tmp_path / "state.pt", "print", {"step": 3})
    assert state.load(tmp_path / "state.pt", "another", said.append) is None
    assert "is of other settings, code or data, so it is not used" in said[0]


def test_a_state_of_another_model_cannot_be_restored():
    saved = fit().state()
    other = Fit(build(dataclasses.replace(SHAPE, mlp=15), 0), Task(settings(), 0), settings(), 0, "cpu")
    with pytest.raises((RuntimeError, ValueError)):
        other.restore(saved)
    with pytest.raises(ValueError, match="another model"):
        other.optimizer.load_state(saved["optimizer"])
