"""The operator `attend` of a mechanism, held against its equations, the vectors they gave, and its own other forms.

The equations are `tests/equations/<impl>.py`, scalar loops that share nothing with `impls` but the weights of the
projections: a bug that is wrong everywhere alike (a missing 1/sqrt(K), exp for elu + 1) shows there alone.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from harness.proofs import contract, extremes, vectors
from harness.proofs.cases import Case, nudged, tokens, width
from harness.proofs.gauge import Found, Gauge, Missing, NotApplicable, Violation
from impls import ops
from impls.base import TokenMixer

SLOPE = 1e-6  # of a central difference
SMALL = 1e-2  # outputs below it are held to a hundredth of what those near 1 are
CHUNKS = (1, 8, 128)  # of forms: step by step, in chunks, all pairs at once
ROW = 70  # tokens


def equations(impl: str) -> ModuleType:
    """The scalar loops of a mechanism. Raises Missing where nobody wrote any."""
    if not vectors.has_equations(impl):
        raise Missing(f"no scalar loop: write {vectors.EQUATIONS}/{impl}.py")
    return importlib.import_module(f"tests.equations.{impl}")


def equation(case: Case) -> Found:
    """The layer is its equations, number by number; so is `attend`, in values and along one direction in slope."""
    written, gauge = equations(case.impl), Gauge(scale=SMALL)
    if hasattr(written, "forward"):
        layer_equals(nudged(case), written.forward, gauge)
    for attend in forms_of(case.impl) if hasattr(written, "cases") else ():
        for name in vectors.cases(case.impl):
            operator_equals(attend, written.attend, vectors.cases(case.impl)[name], name, gauge)
    return gauge.found("largest difference from the scalar loop")


def layer_equals(mixer: TokenMixer, forward: Callable[[Any, Tensor], Tensor], gauge: Gauge) -> None:
    x_BTD = torch.randn(2, 7, width(mixer), generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    with torch.no_grad():
        gauge.close(mixer(x_BTD), torch.stack([forward(mixer, x_TD) for x_TD in x_BTD]), "the layer")


def operator_equals(
    attend: Callable[..., Tensor], written: Callable[..., Tensor], inputs: dict[str, Any], name: str, gauge: Gauge
) -> None:
    """Values, and the slope of one weighted sum of them along one direction in all float inputs at once."""
    with torch.no_grad():
        gauge.close(attend(**inputs), written(**inputs), f"attend ({name})")
    along = vectors.direction(inputs)
    moving = {n: z.clone().requires_grad_() if n in along else z for n, z in inputs.items()}
    y = attend(**moving)
    grads = torch.autograd.grad((y * vectors.weight_of(y)).sum(), [moving[n] for n in along], allow_unused=True)
    slope = sum((g * d).sum() for g, d in zip(grads, along.values(), strict=True) if g is not None)
    Gauge(SLOPE, scale=0.1).close(
        torch.as_tensor(slope), vectors.slope(written, inputs), f"the slope of attend ({name})"
    )


def oracle(case: Case) -> Found:
    """`attend` and `attend.reference` give the vectors that are kept in the project."""
    stored = vectors.read().get(case.impl)
    if stored is None:
        raise Missing(f"no stored vectors: write {vectors.EQUATIONS}/{case.impl}.py, then run {vectors.COMMAND}")
    gauge = Gauge(scale=SMALL)
    for name, inputs in vectors.cases(case.impl).items():
        if {n: vectors.plain(z) for n, z in inputs.items()} != stored.get(name, {}).get("inputs"):
            raise Violation(f"the inputs of {name!r} are not those that are stored; run {vectors.COMMAND}")
        for attend in forms_of(case.impl):
            gauge.close(attend(**inputs), torch.tensor(stored[name]["y"], dtype=torch.float64), f"attend ({name})")
    return gauge.found("largest difference from stored vectors")


def forms(case: Case) -> Found:
    """Its forms agree on a row: token by token, in chunks of 1, 8 and 128, and with `attend.reference` for `attend`."""
    mixer, gauge, agreed = nudged(case), Gauge(), ["all at once"]
    module = inspect.getmodule(type(mixer))
    x_BTD = tokens(mixer, ROW)
    with torch.no_grad():
        y_BTD = mixer(x_BTD)
        step_BTD = _decoded(mixer, x_BTD)
        gauge.close(step_BTD, y_BTD, "token by token")
        agreed.append("token by token")
        for size in CHUNKS:
            with replaced(ops, "chunk_size", lambda T, chunk, size=size: size) as used:
                gauge.close(mixer(x_BTD), y_BTD, f"in chunks of {size}")
            agreed += [f"in chunks of {size}"] if used else []
        attend = getattr(module, "attend", None)
        if attend is not None and getattr(attend, "reference", attend) is not attend:
            with replaced(module, "attend", attend.reference) as used:
                gauge.close(mixer(x_BTD), y_BTD, "with attend.reference")
            agreed += ["with attend.reference"] if used else []
    return gauge.found(f"largest difference between {', '.join(agreed)}")


def _decoded(mixer: TokenMixer, x_BTD: Tensor) -> Tensor:
    y_BTD, state = mixer.prefill(x_BTD[:, :1])
    outputs = [y_BTD[:, 0]]
    for x_BD in x_BTD[:, 1:].unbind(1):
        y_BD, state = mixer.step(x_BD, state)
        outputs.append(y_BD)
    return torch.stack(outputs, dim=1)


@contextmanager
def replaced(module: Any, name: str, other: Callable[..., Any]) -> Iterator[list[bool]]:
    """A function of a module stands for another for a while; the list is empty where nobody called it."""
    before, used = getattr(module, name), []

    def watched(*args: Any, **kwargs: Any) -> Any:
        used.append(True)
        return other(*args, **kwargs)

    setattr(module, name, watched)
    try:
        yield used
    finally:
        setattr(module, name, before)


def gradcheck(case: Case) -> Found:
    """Gradients are finite differences in float64: of `attend` entry by entry (torch.autograd.gradcheck), of the layer
    along one direction in inputs and parameters at once."""
    found = contract.slope(nudged(case))
    checked = 0
    if vectors.has_equations(case.impl) and hasattr(equations(case.impl), "cases") and not case.args:
        attend = forms_of(case.impl)[0]
        for name, inputs in vectors.cases(case.impl).items():
            moved = list(vectors.direction(inputs))
            try:
                torch.autograd.gradcheck(
                    lambda *z, inputs=inputs, moved=moved: attend(**(inputs | dict(zip(moved, z, strict=True)))),
                    [inputs[n].clone().requires_grad_() for n in moved],
                )
            except RuntimeError as error:
                raise Violation(f"attend ({name}): {' '.join(str(error).split())[:200]}") from None
            checked += sum(inputs[n].numel() for n in moved)
    entries = f"; {checked} inputs of attend one by one" if checked else ""
    return found._replace(text=found.text + entries)


def extreme(case: Case) -> Found:
    """Outputs and gradients stay finite in float32: zero, equal, tiny, huge, alternating and spiked rows, scores of
    ±60, decays and write strengths of 0 and 1, masked rows; 600 tokens do not make outputs grow without end."""
    found = extremes.layer(nudged(case))
    tried = int(found.number or 0)
    if vectors.has_equations(case.impl) and hasattr(equations(case.impl), "cases"):
        for attend in forms_of(case.impl):
            tried += sum(extremes.operator(attend, inputs) for inputs in vectors.cases(case.impl).values())
    return Found(tried, None, "extremes tried, each forward and backward")


def forms_of(impl: str) -> list[Callable[..., Tensor]]:
    """`attend`, and `attend.reference` where it is another. Raises NotApplicable where a mechanism has neither."""
    attend = getattr(importlib.import_module(f"impls.{impl}"), "attend", None)
    if attend is None:
        raise NotApplicable("it has no operator attend")
    return list(dict.fromkeys([attend, getattr(attend, "reference", attend)]))
