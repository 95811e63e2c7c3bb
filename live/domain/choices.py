"""Tables of choices from a file or a request: all mistakes that the types of the choices reveal. No I/O."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import UNSET

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


def read_table(
    table: Mapping[str, Any], struct: type[msgspec.Struct], path: str = ""
) -> tuple[dict[str, Any], list[Mistake]]:
    """Check a table and the tables in it. Returns the choices that can be converted to the struct, and the mistakes.

    A table in it that lacks a required choice, and a list with a mistake, are left out as a whole.
    """
    fields = _fields(struct)
    valid: dict[str, Any] = {}
    mistakes = []
    for name, value in table.items():
        if name in fields:
            checked, found = _read_value(value, fields[name].type, path + name)
            mistakes += found
            if checked is not UNSET:
                valid[name] = checked
        else:
            mistakes.append(Mistake(path + name, unknown("choice", name, fields), about_value=False))
    mistakes += [
        Mistake(path + name, "missing") for name, field in fields.items() if field.required and name not in table
    ]
    return valid, mistakes


@cache
def _fields(struct: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """The fields of a struct by name.

    Cached, because finding their types takes longer than everything else about a board.
    """
    return {field.name: field for field in msgspec.structs.fields(struct)}


def _read_value(value: object, kind: Any, path: str) -> tuple[object, list[Mistake]]:  # noqa: ANN401 - a type from an annotation
    """Check the value of a choice. Returns what is valid of it, or UNSET, and the mistakes."""
    if isinstance(value, dict) and (struct := _struct_of(kind)) is not None:
        valid, mistakes = read_table(value, struct, f"{path}.")
        is_whole = all(name in valid for name, field in _fields(struct).items() if field.required)
        return valid if is_whole else UNSET, mistakes
    if isinstance(value, list) and (struct := _struct_of(kind, of_list=True)) is not None:
        mistakes = [wrong for at, part in enumerate(value) for wrong in _read_value(part, struct, f"{path}[{at}]")[1]]
        if mistakes:
            return UNSET, mistakes
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(_PLACE)
        return UNSET, [Mistake(path + place.removesuffix("`"), _of_words(value, kind) or reason)]
    return value, []


def _of_words(value: object, kind: Any) -> str | None:  # noqa: ANN401 - as above
    """What is wrong with a value that must be one of some words; None if other values are allowed."""
    if get_origin(kind) is not Literal or not isinstance(value, str):
        kinds = [part for part in get_args(kind) if part is not type(None)]
        return _of_words(value, kinds[0]) if len(kinds) == 1 and get_origin(kinds[0]) is Literal else None
    return unknown("value", value, get_args(kind))


def _struct_of(kind: Any, *, of_list: bool = False) -> type[msgspec.Struct] | None:  # noqa: ANN401 - as above
    """Find the struct of a choice that can be a table, or a list of tables."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if (get_origin(kind) is tuple) is not of_list:
        return None
    return next(
        (one for one in (*get_args(kind), kind) if isinstance(one, type) and issubclass(one, msgspec.Struct)), None
    )
