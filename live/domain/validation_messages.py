"""Messages for invalid values of settings and choices of boards: they say in plain words which values are valid."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from live.domain.text import unknown

_T = TypeVar("_T", bound=inspect.Type)

_PLACE: Final = re.compile(r" - at `\$([.\w\[\]]*)`$")  # ends an error message of msgspec
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")
_MOST_SHOWN: Final = 60  # maximum characters of the value in a message
_TIME: Final = "a time with a time zone, such as 2026-11-22T12:00:00Z"
_UNKNOWN_FIELD: Final = "Object contains unknown field "
_MISSING_FIELD: Final = "Object missing required field "
_PLAIN: Final[Mapping[str, str]] = {  # for words of msgspec, the words that replace them
    "Expected": "expected",
    "Invalid RFC3339 encoded datetime": f"expected {_TIME}",
    "`datetime` with a timezone component": _TIME,
    " | null`": "`",
    "`datetime`": "a time",
    "Number out of range": "the number is out of range",
    "Integer value out of range": "the number is out of range",
    "`int`": "a whole number",
    "`float`": "a decimal number",
    "`str`": "a text",
    "`bool`": "true or false",
    "`object`": "an object",
    "`array`": "a list",
    "`null`": "null",
}


def choice_mistake(error: msgspec.ValidationError, table: Mapping[str, Any], struct: type[msgspec.Struct]) -> str:
    """Say what msgspec found in a table of choices, with the place of the choice, such as `score[0].max`."""
    message, place = _split(str(error))
    whole = inspect.type_info(struct)
    try:
        value, kind = _find(table, whole, place)
    except LookupError:  # the table has an unknown name that looks like a place
        message, value, kind, place = str(error), table, whole, ""
    path = place.strip(".")
    inner = f"{path}." if path else ""
    if message.startswith(_MISSING_FIELD):
        return f"`{inner}{message.removeprefix(_MISSING_FIELD).strip('`')}`: missing"
    known = _part(kind, inspect.StructType)
    if message.startswith(_UNKNOWN_FIELD) and known is not None:
        name = message.removeprefix(_UNKNOWN_FIELD)[1:-1]
        return f"`{inner}{name}`: {unknown('choice', name, _names(known))}"
    return f"`{path}`: {_refusal(value, kind)}"


def invalid_value(error: ValueError, value: object, kind: object) -> str:
    """Say which values are valid for a setting, with the annotation `kind`, in which msgspec found an error."""
    return _refusal(*_find(value, inspect.type_info(kind), _split(str(error))[1]))


def _refusal(value: object, kind: inspect.Type) -> str:
    """Say which values are valid, if `value` (from TOML, JSON or the environment) is not."""
    parts = _parts(kind)
    only = _plain(parts[0])
    if isinstance(value, str) and len(parts) == 1 and isinstance(only, inspect.LiteralType):
        return unknown("value", value, [str(word) for word in only.values], lists=True)
    message = f"expected {' or '.join(map(_expected, parts))}, got {_shown(value)}"
    listed = _part(kind, inspect.VarTupleType)
    if listed is None or isinstance(value, list | dict) or value == "":
        return message
    element = type(_plain(listed.item_type))
    if (type(value), element) in {(str, inspect.StrType), (int, inspect.IntType)} and (listed.min_length or 0) <= 1:
        return f"{message}; write {_shown([value])}"
    if element is inspect.StrType and not isinstance(value, str):
        return f"{message}; texts are in quotes"
    return message


def in_words(error: msgspec.ValidationError, known: Sequence[str] = ()) -> str:
    """Say in plain words what msgspec found in JSON. `known` are the fields of the object, to list them."""
    message, place = _split(str(error))
    if message.startswith(_UNKNOWN_FIELD):
        listed = f"; there are: {', '.join(known)}" if known else ""
        message = f"there is no field {message.removeprefix(_UNKNOWN_FIELD)}{listed}"
    elif message.startswith(_MISSING_FIELD):
        message = f"the field {message.removeprefix(_MISSING_FIELD)} is missing"
    else:
        for word, plain in _PLAIN.items():
            message = message.replace(word, plain)
    path = place.strip(".")
    return f"`{path}`: {message}" if path else message


def _split(message: str) -> tuple[str, str]:
    found = _PLACE.search(message)
    return (message[: found.start()], found[1]) if found else (message, "")


def _find(value: Any, kind: inspect.Type, place: str) -> tuple[Any, inspect.Type]:  # noqa: ANN401 - of any type
    """Return the value at a place such as `.score[0].max`, and its kind."""
    for name, index in _STEP.findall(place):
        if index and (listed := _part(kind, inspect.VarTupleType)) is not None:
            value, kind = value[int(index)], listed.item_type
        elif (struct := _part(kind, inspect.StructType)) is not None:
            value, kind = value[name], {field.encode_name: field.type for field in struct.fields}[name]
    return value, kind


def _expected(kind: inspect.Type) -> str:
    """Describe a kind of value: `a whole number from 1 to 64`."""
    said = "a path" if kind == inspect.CustomType(Path) else "a text"
    match kind:
        case inspect.Metadata(extra={"in_words": words}):
            said = f"a text of {words}"
        case inspect.Metadata(type=plain):
            said = _expected(plain)
        case inspect.LiteralType(values=words):
            said = f"{'one of ' if len(words) > 1 else ''}{', '.join(map(_shown, words))}"
        case inspect.VarTupleType(item_type=item, min_length=least):
            plural = {inspect.StrType: "texts", inspect.IntType: "whole numbers"}.get(type(_plain(item)), "tables")
            said = f"a list of {plural}{f', at least {least}' if least else ''}"
        case inspect.StructType():
            said = f"a table with {', '.join(_names(kind))}"
        case inspect.StrType(min_length=least, max_length=int(most)):
            said = f"a text of {least or 0} to {most} characters"
        case inspect.IntType(ge=least, le=most):
            said = f"a whole number{_range(least, most)}"
        case inspect.FloatType(ge=least, le=most):
            said = f"a number{_range(least, most)}"
        case inspect.BoolType():
            said = "true or false"
        case inspect.DateTimeType():
            said = _TIME
    return said


def _range(least: float | None, most: float | None) -> str:
    if least is None or most is None:
        return "" if least is most else f" of at least {least:,}" if most is None else f" of at most {most:,}"
    return f" from {least:,} to {most:,}"


def _parts(kind: inspect.Type) -> list[inspect.Type]:
    """Return the kinds of a union, without null."""
    plain = _plain(kind)
    several = plain.types if isinstance(plain, inspect.UnionType) else (kind,)
    return [part for part in several if not isinstance(part, inspect.NoneType)]


def _plain(kind: inspect.Type) -> inspect.Type:
    return kind.type if isinstance(kind, inspect.Metadata) else kind


def _part(kind: inspect.Type, wanted: type[_T]) -> _T | None:
    return next((part for part in map(_plain, _parts(kind)) if isinstance(part, wanted)), None)


def _names(struct: inspect.StructType) -> list[str]:
    return [field.encode_name for field in struct.fields]


def _shown(value: object) -> str:
    if isinstance(value, date):  # TOML has dates
        return value.isoformat()
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
