"""Messages for invalid values of settings and choices of boards: they say in plain words which values are valid."""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from live.domain.text import unknown

_PLACE: Final = re.compile(r" - at `\$([.\w\[\]]*)`$")  # ends an error message of msgspec
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")
_MOST_SHOWN: Final = 60  # maximum characters of the value in a message
_BASIC: Final[Mapping[object, str]] = {
    bool: "true or false",
    datetime: "a time with a time zone, such as 2026-11-22T12:00:00Z",
    float: "a number",
    int: "a whole number",
    str: "a text",
    Path: "a path",
}
_UNKNOWN_FIELD: Final = "Object contains unknown field "
_MISSING_FIELD: Final = "Object missing required field "
_PLAIN: Final[Mapping[str, str]] = {  # for words of msgspec, the words that replace them
    "Expected": "expected",
    "Invalid RFC3339 encoded datetime": f"expected {_BASIC[datetime]}",
    "`datetime` with a timezone component": _BASIC[datetime],
    " | null`": "`",
    "`datetime`": "a time",
    "Number out of range": "the number is out of range",
    "Integer value out of range": "the number is out of range",
    "`int`": _BASIC[int],
    "`float`": "a decimal number",
    "`str`": _BASIC[str],
    "`bool`": _BASIC[bool],
    "`object`": "an object",
    "`array`": "a list",
    "`null`": "null",
}
_PLURAL: Final[Mapping[object, str]] = {str: "texts", int: "whole numbers"}


def choice_mistake(error: msgspec.ValidationError, table: Mapping[str, Any], struct: type[msgspec.Struct]) -> str:
    """Say what msgspec found in a table of choices, with the place of the choice, such as `score[0].max`."""
    message, place = _split(str(error))
    try:
        value, kind = find(table, struct, place)
    except LookupError:  # the table has an unknown name that looks like a place
        message, value, kind, place = str(error), table, struct, ""
    path = place.strip(".")
    inner = f"{path}." if path else ""
    if message.startswith(_MISSING_FIELD):
        return f"`{inner}{message.removeprefix(_MISSING_FIELD).strip('`')}`: missing"
    known = struct_of(kind)
    if message.startswith(_UNKNOWN_FIELD) and known is not None:
        name = message.removeprefix(_UNKNOWN_FIELD)[1:-1]
        return f"`{inner}{name}`: {unknown('choice', name, known.__struct_fields__)}"
    return f"`{path}`: {refusal(value, kind)}"


def invalid_value(error: ValueError, value: object, kind: Any) -> str:  # noqa: ANN401 - a type from an annotation
    """Say which values are valid for a setting in which msgspec found an error."""
    return refusal(*find(value, kind, _split(str(error))[1]))


def refusal(value: object, kind: Any) -> str:  # noqa: ANN401 - a type from an annotation
    """Say which values are valid, if `value` is invalid.

    Args:
        value: from TOML, JSON or an environment variable.
        kind: the annotation of the setting or choice.
    """
    words = [word for part in _parts(kind) if get_origin(part) is Literal for word in get_args(part)]
    if isinstance(value, str) and words and len(_parts(kind)) == 1:
        return unknown("value", value, words, lists=True)
    message = f"expected {expected(kind)}, got {_shown(value)}"
    listed = _list_of(kind)
    element = None if listed is None else _bare(get_args(listed)[0])
    if element is not None and not isinstance(value, list | dict) and _fits([value], kind):
        return f"{message}; write {_shown([value])}"
    if element is str and not isinstance(value, str | list | dict):
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
    """Split the place, such as `.score[0].max`, from a message of msgspec."""
    found = _PLACE.search(message)
    return (message[: found.start()], found[1]) if found else (message, "")


def find(value: Any, kind: Any, place: str) -> tuple[Any, Any]:  # noqa: ANN401 - of any type
    """Return the value at a place such as `.score[0].max`, and its kind."""
    for name, index in _STEP.findall(place):
        struct = struct_of(kind)
        if index:
            value, kind = value[int(index)], get_args(_list_of(kind))[0]
        elif struct is not None:
            value, kind = value[name], get_type_hints(struct, include_extras=True)[name]
    return value, kind


def struct_of(kind: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401 - a type from an annotation
    """Return the struct of a choice that can be a table, or None."""
    return next((part for part in _parts(kind) if isinstance(part, type) and issubclass(part, msgspec.Struct)), None)


def expected(kind: Any) -> str:  # noqa: ANN401 - a type from an annotation
    """Describe a kind of value: `a whole number from 1 to 64`."""
    return " or ".join(_one(part) for part in _parts(kind))


def _one(kind: Any) -> str:  # noqa: ANN401 - a type from an annotation
    if get_origin(kind) is Literal:
        words = [_shown(word) for word in get_args(kind)]
        return words[0] if len(words) == 1 else f"one of {', '.join(words)}"
    bounds = _bounds(kind)
    kind = _bare(kind)
    if get_origin(kind) is tuple:
        element = _bare(get_args(kind)[0])
        least = f", at least {bounds['min_length']}" if bounds["min_length"] else ""
        return f"a list of {_PLURAL.get(element, 'tables')}{least}"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"a table with {', '.join(kind.__struct_fields__)}"
    if bounds["max_length"]:
        return f"a text of {bounds['min_length'] or 0} to {bounds['max_length']} characters"
    if said := (bounds["extra"] or {}).get("in_words"):
        return f"a text of {said}"
    limits = _range(bounds["ge"], bounds["le"])
    return f"{_BASIC.get(kind, 'a text')}{f' {limits}' if limits and kind in {int, float} else ''}"


def _range(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return "" if least is most else f"of at least {least:,}" if most is None else f"of at most {most:,}"
    return f"from {least:,} to {most:,}"


def _parts(kind: Any) -> list[Any]:  # noqa: ANN401 - a type from an annotation
    """List the alternatives of a kind, without None."""
    if get_origin(kind) is Annotated and get_origin(kind.__origin__) in {Union, UnionType, Literal}:
        kind = kind.__origin__
    several = get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)
    return [part for part in several if part is not NoneType]


def _bare(kind: Any) -> Any:  # noqa: ANN401 - a type from an annotation
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _bounds(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a type from an annotation
    metas = [part for part in getattr(kind, "__metadata__", ()) if isinstance(part, Meta)]
    names = ("ge", "le", "min_length", "max_length", "extra")
    return {name: next((value for meta in metas if (value := getattr(meta, name)) is not None), None) for name in names}


def _list_of(kind: Any) -> Any:  # noqa: ANN401 - a type from an annotation
    return next((bare for bare in map(_bare, _parts(kind)) if get_origin(bare) is tuple), None)


def _fits(value: object, kind: Any) -> bool:  # noqa: ANN401 - a type from an annotation
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _shown(value: object) -> str:
    if isinstance(value, date):  # TOML has dates
        return value.isoformat()
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
