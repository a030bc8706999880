"""Claims of a paper as data: a sentence, where it stands, and a test that is fixed before its result is known.

Five kinds: `compare`, `value`, `trend`, `property`, `untested`. A sentence that promises several things at once is
`all_of` or `any_of` such tests. How each is judged is stated in `harness.verdict`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from harness.closed import Closed, List, Name, NotNegative, Positive, Slug, Text
from harness.yamlio import Where

STRICT = ("higher", "lower", "rises", "falls")  # expectations that make sense with a margin of 0


class Number(Closed):
    """A number that the paper reports, with all that must agree before another paper's may stand beside it."""

    model: Text  # as most papers call it: Transformer++
    scale: Text  # parameters, then tokens: 340M, 15B
    data: Text  # trained on
    metric: Text  # with the text or test it is of: Wikitext perplexity
    value: float
    source: Text  # where in the paper: Table 5
    run: Name | None = None  # ours for the same mechanism,
    measured: Text | None = None  # and the metric key of the nearest that we measure of it

    @model_validator(mode="after")
    def _ours_is_whole(self) -> Number:
        if (self.run is None) != (self.measured is None):
            raise ValueError("run and measured go together; give both or neither")
        return self


class Claim(Closed):
    """What every claim has: a sentence of the paper and where it stands."""

    id: Slug
    quote: Text
    paraphrase: bool = False  # the quote gives the sense, not the words
    where: Text
    reading: Text | None = None  # how the sentence became this test
    reported: Text | None = None  # the paper's own numbers, with their scale
    numbers: List[Number] = ()  # those of them that other papers may report too


class Need(Closed):
    """A measurement without which a test says nothing, as a claim against sinks where the baseline has none.

    `metric` of `run` is at least or at most so much in every seed that the test uses; else the test is inconclusive,
    whatever its numbers, and `lacking` says why in a few words: no sink in the baseline.
    """

    run: Name
    metric: Text
    at_least: float | None = None
    at_most: float | None = None
    lacking: Text

    @model_validator(mode="after")
    def _one_bound(self) -> Need:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("needs one bound: at_least or at_most")
        return self

    @property
    def bound(self) -> str:
        """`at least 0.3`, with a real minus sign."""
        side, value = ("least", self.at_least) if self.at_most is None else ("most", self.at_most)
        return f"at {side} {value:g}".replace("-", "−")

    def met(self, value: float) -> bool:
        """Whether this value is within the bound."""
        return value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0.0)


class _Conditional(Closed):
    """What must be so for a test to say anything."""

    needs: List[Need] = ()


class _Margin(_Conditional):
    """A margin in the metric's unit (of a trend: per doubling), and who says that it matters."""

    margin: NotNegative
    margin_from: Text

    @model_validator(mode="after")
    def _margin_leaves_room(self) -> _Margin:
        expect = getattr(self, "expect", "higher")
        if self.margin == 0 and expect not in STRICT:
            raise ValueError(f"expect: {expect} needs a margin above 0, or nothing could ever confirm it")
        return self


class Compare(_Margin):
    """`run` against `baseline` on one metric.

    higher, lower: by more than `margin`; not_lower, not_higher: not by `margin` or more; within: neither.
    """

    kind: Literal["compare"]
    run: Name
    baseline: Name
    metric: Text
    expect: Literal["higher", "lower", "not_lower", "not_higher", "within"]


class Value(_Conditional):
    """A reported number, only where the scales match."""

    kind: Literal["value"]
    run: Name
    metric: Text
    value: float
    tolerance: Positive
    tolerance_from: Text


class Trend(_Margin):
    """The slope of a metric per doubling of `over`: of the run, or of run minus baseline where one is given.

    Over length, `metric` is a key without `@`; over pairs its task is one without the number: `recall/mqar/accuracy`.
    """

    kind: Literal["trend"]
    run: Name
    baseline: Name | None = None
    metric: Text
    over: Literal["length", "pairs"]
    expect: Literal["rises", "falls", "flat"]


class Property(Closed):
    """A check of `harness/checks.py` that holds exactly."""

    kind: Literal["property"]
    run: Name
    check: Name


class Untested(Closed):
    """What is not judged here, with the reason."""

    kind: Literal["untested"]
    reason: Text


class CompareClaim(Claim, Compare):
    __doc__ = Compare.__doc__


class ValueClaim(Claim, Value):
    __doc__ = Value.__doc__


class TrendClaim(Claim, Trend):
    __doc__ = Trend.__doc__


class PropertyClaim(Claim, Property):
    __doc__ = Property.__doc__


class UntestedClaim(Claim, Untested):
    __doc__ = Untested.__doc__


Test = Annotated[Compare | Value | Trend | Property | Untested, Field(discriminator="kind")]


def _several(parts: tuple[Test, ...]) -> tuple[Test, ...]:
    if len(parts) < 2:
        raise ValueError("needs at least 2 parts")
    return parts


Parts = Annotated[List[Test], AfterValidator(_several)]


class AllOf(Claim):
    """A sentence that promises every part."""

    kind: Literal["all_of"]
    parts: Parts


class AnyOf(Claim):
    """A sentence that promises one of its parts at least."""

    kind: Literal["any_of"]
    parts: Parts


AnyClaim = Annotated[
    CompareClaim | ValueClaim | TrendClaim | PropertyClaim | UntestedClaim | AllOf | AnyOf, Field(discriminator="kind")
]


def tests(claim: AnyClaim) -> Iterator[tuple[Where, Test]]:
    """The tests of a claim, each with its path below the claim: itself, or its parts."""
    if isinstance(claim, AllOf | AnyOf):
        yield from ((("parts", place), part) for place, part in enumerate(claim.parts))
    else:
        yield (), claim
