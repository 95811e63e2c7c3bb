"""What a board made at run time may be, and what of it may change while it lives. Pure: no I/O, no clock."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import msgspec

from live.board import Board
from live.board_file import BoardChoice, make_board
from live.window import parse_duration

_NO_CHOICE: Final = ("there is no choice of this name", "the id is the one in the path")


class RunningChoice(BoardChoice, frozen=True, kw_only=True):
    """The choices of a `[[board]]`, and two that only a board made at run time has."""

    frozen: bool = False
    idle_ttl: str | None = None


class DefinitionError(ValueError):
    """A definition has mistakes; `mistakes` are all of them."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


def read_board(board_id: str, choices: Mapping[str, Any]) -> Board:
    """The board of some choices.

    Raises:
        DefinitionError: they are no board's; every mistake at once.
    """
    wrong = dict(_wrong(choices, RunningChoice, ""))
    good = _without(choices, wrong, "")
    mistakes = [f"`{path}`: {reason}" for path, reason in wrong.items()]
    idle_ttl = None
    try:
        idle_ttl = _seconds(good.get("idle_ttl"))
    except ValueError as error:
        mistakes.append(f"`idle_ttl`: {error}")
    try:
        choice = msgspec.convert({**good, "id": board_id}, RunningChoice)
        board = make_board(choice)
    except ValueError as error:
        # What is said of a choice that was left out here follows from its default, and is nobody's mistake.
        out = {path.rpartition(".")[2] for path, reason in wrong.items() if reason not in _NO_CHOICE}
        mistakes += [line for line in str(error).splitlines() if not out & set(re.findall(r"\w+", line))]
        raise DefinitionError(mistakes) from None
    if mistakes:
        raise DefinitionError(mistakes)
    return msgspec.structs.replace(board, frozen=choice.frozen, idle_ttl=idle_ttl)


def merge(choices: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Choices with some of them changed, as a JSON Merge Patch (RFC 7396) does: null takes a choice back."""
    merged = dict(choices)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            held = merged.get(name)
            merged[name] = merge(held if isinstance(held, dict) else {}, value)
        else:
            merged[name] = value
    return merged


def forbidden(old: Board, new: Board) -> Iterator[str]:
    """The choices that can't change while the board's data lives, each with the reason."""
    before, after = old.shape, new.shape
    for part, (names, reason) in _FIXED.items():
        if getattr(before, part) != getattr(after, part):
            changed = [name for name in names if getattr(old, name) != getattr(new, name)] or names
            yield f"`{changed[0]}` can't change: {reason}"
    if old.union != new.union:
        yield "`union` and `weights` can't change: what was added up came with the old ones"
    if (old.votes is None) != (new.votes is None):
        yield "`votes` can't begin or end: who has voted is kept from the first event on; its limits may change"
    if new.cap is not None and (old.cap is None or new.cap < old.cap):
        yield "`cap` can only grow, or be lifted: records are cut off by events, and none would come for these"
    if old.cap is not None and old.sort_order != new.sort_order:
        yield "`sort_order` can't change: with a `cap`, the records of the other end were cut off"


_FIXED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "window": (("window",), "what is counted is cut into its slots; of a window only `keep` and `grace` may change"),
    "operation": (("operator", "sort_order"), "each score was made by it, event by event"),
    "tags": (("ties", "sort_order"), "how ties are broken is written into the ranking"),
    "levels": (("ranks",), "dense ranks are counted from the first event on"),
    "fields": (("score",), "each score is packed by it"),
    "clock": (("clock",), "events were put into slots by it"),
}


def _wrong(table: Mapping[str, Any], struct: type[msgspec.Struct], path: str) -> Iterator[tuple[str, str]]:
    """What types can tell of each choice by itself; those of a table inside of a choice are looked at one by one."""
    fields = {field.name: field for field in msgspec.structs.fields(struct)}
    for name, value in table.items():
        where = path + name
        if name not in fields:
            yield where, _NO_CHOICE[0]
        elif where == "id":
            yield where, _NO_CHOICE[1]
        elif isinstance(value, dict) and (inner := _table_of(fields[name].type)) is not None:
            yield from _wrong(value, inner, f"{where}.")
        else:
            try:
                msgspec.convert(value, fields[name].type)
            except msgspec.ValidationError as error:
                yield where, str(error)


def _table_of(choice: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401 - a type, as annotations have it
    """The struct of a choice that is a table."""
    return next(
        (kind for kind in get_args(choice) if isinstance(kind, type) and issubclass(kind, msgspec.Struct)), None
    )


def _without(table: Mapping[str, Any], wrong: Mapping[str, str], path: str) -> dict[str, Any]:
    """A table without the choices that are wrong."""
    return {
        name: _without(value, wrong, f"{path}{name}.") if isinstance(value, dict) else value
        for name, value in table.items()
        if path + name not in wrong
    }


def _seconds(text: Any) -> int | None:  # noqa: ANN401 - what is no text has been told by its type
    if not isinstance(text, str):
        return None
    seconds = parse_duration(text)
    if seconds < 1 or seconds != int(seconds):
        raise ValueError(f"{text!r} is not a whole number of seconds, 1s or more")
    return int(seconds)
