"""What every `Mixer.Config` must be: frozen, keyword-only, closed, and alive in each of its fields."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import torch

from harness.proofs.cases import Case, build, nudge, width
from harness.proofs.gauge import Found

LENGTHS = (12, 140, 330)  # tokens; a field about blocks of tokens may show at the longest alone


class Watched:
    """A config that remembers which of its fields were read."""

    def __init__(self, cfg: Any):
        self.__dict__.update(cfg=cfg, read=set())

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self.cfg, name)


def another(value: Any) -> list[Any]:
    """Other values to try for a field that has this one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value // 2, value * 2, value + 1]
    if isinstance(value, float):
        return [value / 2, value * 2, value + 1]
    if isinstance(value, tuple | list) and value:
        return [[z + 1 for z in value], [z / 2 for z in value]]
    return []


def closed_config(case: Case) -> Found:
    """Settings are frozen and named, unknown ones are refused, every one is read, and every number has an effect."""
    mixer_class = importlib.import_module(f"impls.{case.impl}").Mixer
    return config_is_closed_and_alive(mixer_class, width(build(case)))


def config_is_closed_and_alive(mixer_class: type, d_model: int) -> Found:
    """Frozen, keyword-only, unknown names refused, every field read and every number of consequence."""
    cfg = mixer_class.Config()
    fields = dataclasses.fields(cfg)
    for field in fields:
        assert field.kw_only, f"{field.name} is positional"
        try:
            setattr(cfg, field.name, None)
        except dataclasses.FrozenInstanceError:
            continue
        raise AssertionError(f"{field.name} can be assigned to")
    try:
        mixer_class.Config(no_such_field=1)
    except TypeError:
        pass
    else:
        raise AssertionError("an unknown field is accepted")
    watched = Watched(cfg)
    mixer_class(d_model, watched)
    unread = {field.name for field in fields} - watched.read
    assert not unread, f"fields never read: {', '.join(sorted(unread))}"
    idle = [field.name for field in fields]
    for T in LENGTHS:
        plain = fingerprint(mixer_class, d_model, cfg, T)
        idle = [name for name in idle if not matters(mixer_class, d_model, cfg, name, T, plain)]
        if not idle:
            break
    assert not idle, f"{', '.join(idle)} changes nothing"
    return Found(len(fields), None, "settings, each read and of effect")


def matters(mixer_class: type, d_model: int, cfg: Any, name: str, T: int, plain: list[Any]) -> bool:
    """Whether another value of a field changes anything; so too where there is none to try."""
    others = []
    for value in another(getattr(cfg, name)):
        try:
            others.append(fingerprint(mixer_class, d_model, dataclasses.replace(cfg, **{name: value}), T))
        except (ValueError, TypeError):
            continue
        if others[-1] != plain:
            return True
    return not others


def fingerprint(mixer_class: type, d_model: int, cfg: Any, T: int) -> list[Any]:
    """Parameter shapes, and outputs of one seed: in training mode too, where averages move, and of large inputs."""
    torch.manual_seed(0)
    mixer = nudge(mixer_class(d_model, cfg)).double()
    x_BTD = torch.randn(2, T, d_model, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    outputs = [mixer(x_BTD), mixer(30 * x_BTD), mixer.train()(x_BTD), mixer(x_BTD)]
    return [tuple(p.shape) for p in mixer.parameters()] + [y_BTD.tolist() for y_BTD in outputs]
