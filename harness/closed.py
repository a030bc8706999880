"""Closed models: unknown keys, wrong types and bad ranges become sentences with a line and the nearest valid name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, ValidationError

from harness.errors import suggest
from harness.yamlio import Document, Where, shorten, show


class Closed(BaseModel):
    """A frozen record that refuses unknown keys, text for numbers, and numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


NAME = "[a-z0-9_]{1,60}"
SLUG = "[a-z0-9]+(-[a-z0-9]+)*"

WANTED = {  # what the common type errors of pydantic ask for, in a user's words
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "finite_number": "a finite number",
}

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


def _distinct(items: tuple[T, ...]) -> tuple[T, ...]:
    repeated = [item for place, item in enumerate(items) if item in items[:place]]
    if repeated:
        raise ValueError(f"holds {repeated[0]!r} twice")
    return items


def _ascending(items: tuple[T, ...]) -> tuple[T, ...]:
    if list(items) != sorted(set(items)):  # pyright: ignore[reportArgumentType]
        raise ValueError(f"should be in ascending order with no value twice: {sorted(set(items))}")  # pyright: ignore
    return items


def _some(items: T) -> T:
    if not items:
        raise ValueError("is empty; give at least one")
    return items


def _name(text: str) -> str:
    if not re.fullmatch(NAME, text):
        raise ValueError(f"{shorten(text)!r} is not a name; use up to 60 of a-z, 0-9 and _ (plain Latin letters)")
    return text


def _plain(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise ValueError("should be one number, text, true or false")
    return value


def slug(text: str) -> str:
    """The text itself if it may name a file or a claim. Raises ValueError with a sentence otherwise."""
    if not re.fullmatch(SLUG, text) or len(text) > 60:
        raise ValueError(
            f"{shorten(text)!r} is not a slug; use up to 60 of a-z, 0-9 and single hyphens (plain Latin letters)"
        )
    return text


Count = Annotated[int, Field(ge=1, le=10**12)]
Natural = Annotated[int, Field(ge=0, le=10**12)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(min_length=1, max_length=5000)]
Name = Annotated[str, AfterValidator(_name), Field(json_schema_extra={"pattern": f"^{NAME}$"})]
Slug = Annotated[str, AfterValidator(slug), Field(json_schema_extra={"pattern": f"^{SLUG}$", "maxLength": 60})]
Plain = Annotated[Any, AfterValidator(_plain), Field(json_schema_extra={"type": ["boolean", "number", "string"]})]
List = Annotated[tuple[T, ...], Strict(False)]
Some = Annotated[T, AfterValidator(_some)]
Distinct = Annotated[tuple[T, ...], Strict(False), AfterValidator(_some), AfterValidator(_distinct)]
Ascending = Annotated[tuple[T, ...], Strict(False), AfterValidator(_some), AfterValidator(_ascending)]


def check(model: type[M], value: Any, doc: Document, at: Where = ()) -> M | None:
    """The value as this model; or None, with every fault noted in `doc` under the path `at`."""
    try:
        return model.model_validate(value)
    except ValidationError as problem:
        for error in problem.errors(include_url=False):
            path = (*at, *_in_data(value, error["loc"], error["type"] == "missing"))
            marked = (*path, "kind") if error["type"] == "union_tag_invalid" else path
            doc.blame(marked, _sentence(error, path, model, doc))
        return None


def _sentence(error: Any, path: Where, model: type[BaseModel], doc: Document) -> str:
    """A pydantic error in a user's words. Unions are told apart by a field `kind`."""
    kind, ctx, given = error["type"], error.get("ctx", {}), error["input"]
    at, parent = show(path) or "the file", show(path[:-1]) or "the file"
    if kind == "extra_forbidden":
        name = shorten(str(path[-1]))
        return f"unknown key {name!r} in {parent}{_instead(name, _fields(model, error['loc'][:-1]))}"
    if kind == "missing":
        return f"{parent} lacks the key {path[-1]!r}"
    if kind == "union_tag_not_found":
        return f"{at} lacks the key 'kind'"
    if kind == "union_tag_invalid":
        tag = shorten(str(ctx["tag"]))
        return f"{at} has the unknown kind {tag!r}{suggest(tag, _quoted(ctx['expected_tags']))}"
    if kind == "literal_error":
        name = shorten(str(given))
        return f"{at} cannot be {name!r}{suggest(name, _quoted(ctx['expected']))}"
    if kind == "value_error":
        return f"{at}: {ctx['error']}"
    text = shorten(str(doc.texts.get(path, given)))
    got = "nothing" if given is None else repr(text) if isinstance(given, str) else text
    wanted = WANTED.get(kind) or error["msg"].partition(" should be ")[2]
    return f"{at} should be {wanted}, got {got}" if wanted else f"{at}: {error['msg']}, got {got}"


def _quoted(text: str) -> list[str]:
    """The names between quotes in a message of pydantic's."""
    return re.findall(r"'([^']*)'", text)


def _in_data(value: Any, loc: Iterable[str | int], missing: bool) -> Where:
    """A pydantic location without the parts that name a union's branch or say 'this key'; its end may be missing."""
    path: list[str | int] = []
    parts = [part for part in loc if part != "[key]"]
    for place, part in enumerate(parts):
        known = part in _children(value)
        value = value[part] if known else value
        if known or (missing and place == len(parts) - 1):
            path.append(part)
    return tuple(path)


def _children(value: Any) -> Any:
    """The keys of a mapping, the indices of a sequence, nothing of all else."""
    return value if isinstance(value, dict) else range(len(value)) if isinstance(value, list | tuple) else ()


def _instead(name: str, fields: dict[str, Any]) -> str:
    """What was meant by a key that there is not: a value of another, or the nearest."""
    taking = [key for key, field in fields.items() if name in _choices(field.annotation)]
    return f"; did you mean '{taking[0]}: {name}'?" if taking else suggest(name, fields)


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The values of a literal; nothing of all else."""
    bare = _bare(annotation)
    return get_args(bare) if get_origin(bare) is Literal else ()


def _fields(model: type[BaseModel], loc: Iterable[str | int]) -> dict[str, Any]:
    """The fields of the model that stands at a pydantic location inside `model`, by name."""
    at: Any = model
    for part in loc:
        at = _step(at, part)
    at = _bare(at)
    return dict(at.model_fields) if isinstance(at, type) and issubclass(at, BaseModel) else {}


def _bare(annotation: Any) -> Any:
    """An annotation without Annotated and `| None`."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        return _bare(members[0]) if len(members) == 1 else annotation
    return annotation


def _step(annotation: Any, part: str | int) -> Any:
    annotation = _bare(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        known = annotation.model_fields.get(str(part))
        return known.annotation if known else None
    if get_origin(annotation) in (Union, UnionType):
        return next((member for member in get_args(annotation) if _tag(member) == part), None)
    arguments = get_args(annotation)
    return (arguments[1] if get_origin(annotation) is dict else arguments[0]) if arguments else None


def _tag(member: Any) -> str | None:
    """The literal that marks one branch of a union, as in `kind: Literal["compare"]`."""
    for known in getattr(_bare(member), "model_fields", {}).values():
        if get_origin(known.annotation) is Literal:
            return get_args(known.annotation)[0]
    return None
