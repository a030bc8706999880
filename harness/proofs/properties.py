"""Every property that is asked of a mechanism, and how the answer to one of them is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from harness.proofs import contract, operator
from harness.proofs.cases import Case, nudged
from harness.proofs.configs import closed_config
from harness.proofs.exempt import EXEMPT
from harness.proofs.gauge import Found, Missing, NotApplicable, Violation
from harness.proofs.identities import identities
from harness.proofs.record import Result, Status


class Property(NamedTuple):
    """A property by its name; `once` where it is of the mechanism, whatever its settings."""

    name: str
    ask: Callable[[Case], Found]
    says: str
    once: bool = False


def _of_layer(check: contract.Check) -> Callable[[Case], Found]:
    return lambda case: check(nudged(case))


LAYER: dict[str, contract.Check] = {
    "lengths": contract.any_length,
    "causal_by_prefix": contract.causal_by_prefix,
    "causal_by_jacobian": contract.causal_by_jacobian,
    "causal_by_edit": contract.causal_by_edit,
    "past_used": contract.past_used,
    "rows_independent": contract.rows_independent,
    "decoding": contract.decoding,
    "recurrence": contract.recurrence,
    "live_gradients": contract.live_gradients,
    "bfloat16": contract.bfloat16,
    "packed_documents": contract.packed,
    "state_size": contract.state,
    "pure": contract.pure,
    "weights": contract.weights_explain,
}
WHOLE: dict[str, Callable[[Case], Found]] = {
    "forms": operator.forms,
    "gradcheck": operator.gradcheck,
    "extreme_inputs": operator.extreme,
    "equation": operator.equation,
}
ONCE: dict[str, Callable[[Case], Found]] = {
    "oracle": operator.oracle,
    "identities": identities,
    "closed_config": closed_config,
}


def _says(check: Callable[..., Any]) -> str:
    return " ".join((check.__doc__ or "").split())


PROPERTIES: tuple[Property, ...] = (
    *(Property(name, _of_layer(check), _says(check)) for name, check in LAYER.items()),
    *(Property(name, ask, _says(ask)) for name, ask in WHOLE.items()),
    *(Property(name, ask, _says(ask), once=True) for name, ask in ONCE.items()),
)


@contextmanager
def unwritten_memory_is_nan() -> Iterator[None]:
    """Deterministic kernels, and NaN wherever memory is read before it is written; training has turned that off."""
    filling = torch.utils.deterministic.fill_uninitialized_memory  # pyright: ignore[reportAttributeAccessIssue]
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = filling  # pyright: ignore[reportAttributeAccessIssue]


def prove(case: Case, property: Property, exempt: Mapping[tuple[str, str], str] = EXEMPT) -> Result:
    """Ask once; whatever the mechanism raises is an answer."""
    start = time.process_time()
    with torch.random.fork_rng(devices=[]), unwritten_memory_is_nan():
        status, number, tolerance, text = _answer(case, property)
    reason = exempt.get((case.impl, property.name))
    if reason is not None and status == "ok":
        status, text = "failed", f"exempt ({reason}), but it holds: take the exemption out of harness/proofs/exempt.py"
    elif reason is not None and status == "failed":
        status, text = "exempt", f"{reason} ({text})"
    return Result(
        property=property.name,
        setting="all" if property.once else case.setting,
        status=status,
        number=_finite(number),
        tolerance=tolerance,
        text=text,
        seconds=round(time.process_time() - start, 3),
    )


def _answer(case: Case, property: Property) -> tuple[Status, float | None, float | None, str]:
    try:
        found = property.ask(case)
        return "ok", found.number, found.tolerance, found.text
    except NotApplicable as reason:
        return "not applicable", None, None, str(reason)
    except Missing as reason:
        return "missing", None, None, str(reason)
    except Violation as found:
        return "failed", found.number, found.tolerance, str(found)
    except AssertionError as found:
        return "failed", None, None, str(found)
    except Exception as error:
        return "failed", None, None, " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _finite(number: Any) -> float | None:
    return None if number is None or not abs(number) < float("inf") else float(f"{number:.3g}")
