"""Tables of choices from a file or a request: all mistakes that the types of the choices reveal. No I/O."""

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec

from live.domain.names import unknown

_PLACE: Final = " - at `$"  # precedes the path in an error message of msgspec


class Mistake(NamedTuple):
    """One mistake.

    `path` is like `window.slot` or `score[0].max`. `about_value` is false if no choice has this name.
    """

    path: str
    reason: str
    about_value: bool = True

    def __str__(self) -> str:
        return f"`{self.path}`: {self.reason}"


def mistakes_in(table: Mapping[str, Any], struct: type[msgspec.Struct], path: str = "") -> Iterator[Mistake]:
    """The mistakes that types reveal. Tables inside of a choice or of a list are checked one by one."""
    fields = _fields(struct)
    for name, value in table.items():
        if name in fields:
            yield from _mistakes_of(value, fields[name].type, path + name)
        else:
            yield Mistake(path + name, unknown("choice", name, fields), about_value=False)
    for name, field in fields.items():
        if field.required and name not in table:
            yield Mistake(path + name, "missing")


def without(table: Mapping[str, Any], wrong: Collection[str], path: str = "") -> dict[str, Any]:
    """A table without the choices at the `wrong` paths. A list is removed as a whole."""
    left = {}
    for name, value in table.items():
        where = path + name
        if where in wrong or any(other.startswith(f"{where}[") for other in wrong):
            continue
        left[name] = without(value, wrong, f"{where}.") if isinstance(value, dict) else value
    return left


@cache
def _fields(struct: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """The fields of a struct by name.

    Cached, because finding their types takes longer than everything else about a board.
    """
    return {field.name: field for field in msgspec.structs.fields(struct)}


def _mistakes_of(value: object, kind: Any, path: str) -> Iterator[Mistake]:  # noqa: ANN401 - a type from an annotation
    inner = _struct_of(kind)
    if inner is not None and isinstance(value, dict):
        yield from mistakes_in(value, inner, f"{path}.")
        return
    if inner is not None and isinstance(value, list):
        found = [mistake for at, part in enumerate(value) for mistake in _mistakes_of(part, inner, f"{path}[{at}]")]
        yield from found
        if found:
            return
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(_PLACE)
        yield Mistake(path + place.removesuffix("`"), _of_words(value, kind) or reason)


def _of_words(value: object, kind: Any) -> str | None:  # noqa: ANN401 - as above
    """What is wrong with a value that must be one of some words; None if other values are allowed."""
    if get_origin(kind) is not Literal or not isinstance(value, str):
        kinds = [part for part in get_args(kind) if part is not type(None)]
        return _of_words(value, kinds[0]) if len(kinds) == 1 and get_origin(kinds[0]) is Literal else None
    return unknown("value", value, get_args(kind))


def _struct_of(kind: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401 - as above
    """The struct of a choice that is a table, or a list of tables."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for part in get_args(kind) if (found := _struct_of(part)) is not None), None)
