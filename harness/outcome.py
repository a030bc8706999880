"""What a test of a claim found, and what a check that holds exactly found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness import checks, claims, stats
from harness.verdict import Rule, Verdict


@dataclass(frozen=True)
class Outcome:
    """What a test found. `settled` is the verdict where no statistics are needed or possible, with its `reason`."""

    test: claims.Test
    facts: dict[str, Any]  # what the record of a verdict says of it
    rule: Rule | None = None
    sign: int = 1  # +1 where a larger difference speaks for the claim, else −1
    improvement: stats.Difference | None = None
    settled: Verdict | None = None
    reason: str = ""
    gaps: str = ""  # which seeds are missing and why, for the reader
    noise: float = 0.0

    @cached_property
    def p_values(self) -> tuple[float, float] | None:
        """p-values of `the claim is true` and of `it is false`; None where there was nothing to test."""
        if self.rule is None or self.improvement is None:
            return None
        return self.rule.holds(self.improvement), self.rule.fails(self.improvement)


def checked(test: claims.Property, facts: dict[str, Any], impl: str, args: dict[str, Any]) -> Outcome:
    """The outcome of asking a mechanism a check."""
    facts["check"] = test.check
    try:
        found = checks.run(test.check, impl, args)
    except Exception as error:  # whatever a mechanism raises is the reason its claim cannot be judged
        return Outcome(test, facts, settled="blocked", reason=f"the check {test.check} cannot be made: {error}")
    said = checks.summary(test.check).rstrip(".")
    verb = "holds" if found.holds else "does not hold"
    reason = f"“{said}” {verb}: {found.detail}."
    return Outcome(test, facts, settled="reproduced" if found.holds else "contradicted", reason=reason)
