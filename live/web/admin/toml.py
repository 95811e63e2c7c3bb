"""Writes the definition of a board as a part of a boards file, and finds it there."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

_LONGEST: Final = 1024 * 1024  # bytes of a boards file that are searched for a board
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")  # names that need no quotes
_AT_RUN_TIME: Final = ("frozen", "idle_ttl")  # choices that a boards file does not have


def board_toml(board: str, choices: Mapping[str, Any]) -> str:
    """Write choices as a table of a boards file. Leave out choices that only a run-time board has."""
    lines = [
        f"{_name(name)} = {_value(value)}"
        for name, value in {"id": board, **choices}.items()
        if value is not None and name not in _AT_RUN_TIME
    ]
    return "\n".join(("[[board]]", *lines))


def line_of(path: Path, board: str) -> int | None:
    """Return the number of the line of a boards file that has the id of a board. Return None if it is not found."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST)
    except (OSError, UnicodeDecodeError):
        return None
    has_id = re.compile(rf"""\s*id\s*=\s*["']{re.escape(board)}["']""")
    return next((number for number, line in enumerate(text.split("\n"), 1) if has_id.match(line)), None)


def _value(value: Any) -> str:  # noqa: ANN401 - any JSON
    if isinstance(value, Mapping):
        inner = (f"{_name(name)} = {_value(one)}" for name, one in value.items() if one is not None)
        return f"{{ {', '.join(inner)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    # Texts, numbers, true and false are the same in TOML, except for this character.
    return msgspec.json.encode(value).decode().replace("\x7f", r"\u007f")


def _name(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)
