"""The definitions of boards: what they may contain, and what may change later."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from live.domain.board import Board
from live.domain.board_file import make_board, read_table
from live.domain.choices import Choices
from live.domain.window import Rolling
from live.errors import SetupError
from live.store.connection.client import Store
from live.store.registry.definitions import Definition, DefinitionStore


class DefinitionError(ValueError):
    """A definition has mistakes: one invalid choice, or all choices that contradict each other."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


def read_board(board_id: str, choices: Mapping[str, Any]) -> Board:
    """Make the board that some choices define."""
    if "id" in choices:
        raise DefinitionError(["`id`: the id is the one in the path"])
    try:
        return make_board(read_table({**choices, "id": board_id}, Choices))
    except ValueError as error:
        raise DefinitionError(str(error).split("\n")) from None


async def all_boards(client: Store) -> dict[str, tuple[Board, str]]:
    """Read every board and its epoch."""
    found = {}
    for name, definition in (await DefinitionStore(client).load()).boards.items():
        if definition.state == "live":
            try:
                board = read_board(name, definition.choices)
                other = None if definition.next is None else read_board(name, definition.next)
                if other is not None and await has_rules_of(client, other):
                    board = other
                found[name] = board, definition.epoch
            except DefinitionError as error:
                raise SetupError(f"the definition of board {name!r} can't be read: {error}") from None
    return found


async def has_rules_of(client: Store, board: Board) -> bool:
    """Return whether the store holds a board by these rules."""
    meta = client.keys_of(board.id).meta
    shape: bytes | None = await client.call(meta, "HGET", meta, "shape")
    return shape is not None and shape.decode() == board.shape.encode()


def settled(definition: Definition, choices: dict[str, Any]) -> Definition:
    """End the change of rules in a definition, if any: the board has these choices, and had all others before."""
    earlier = [one for one in (*definition.earlier, definition.choices) if one != choices]
    return msgspec.structs.replace(definition, choices=choices, next=None, swap="", earlier=earlier)


def merge(choices: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a JSON Merge Patch (RFC 7396) to choices: null removes a choice."""
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


def forbidden(
    old: Board, new: Board, advice: str = "`PATCH` it, and the server counts the events again"
) -> Iterator[str]:
    """Find changes that are not possible unless the events are counted again, each with the reason."""
    yield from (f"{line}; {advice}" for line in _changed(old, new, _RULES))
    yield from unruled(old, new)


def unruled(old: Board, new: Board) -> Iterator[str]:
    """Find changes that are not possible while the board has data, each with the reason."""
    yield from _changed(old, new, _FIXED)
    if new.shape != old.shape and new.sums is not None and not _keeps_totals(old, new):
        yield "the fields of `score` add up: they need ranges as wide as before, and slots of the same length"
    if new.like_button and old.shape.window != new.shape.window:
        yield "`window` can't change: with a `like_button`, the like of a visitor counts once in the window"
    if old.parts != new.parts:
        yield "`union` and `weights` can't change: the scores were added up with the old values"
    if (old.votes is None) != (new.votes is None):
        yield "`votes` can't be added or removed: votes are stored from the first event on; only the limits can change"
    if new.cap is not None and (old.cap is None or new.cap < old.cap):
        yield "`cap` can only grow or be removed: a record is cut off only when an event arrives"
    if old.cap is not None and old.sort_order != new.sort_order and old.shape == new.shape:
        yield "`sort_order` can't change: with a `cap`, the records of the other end were cut off"


def _keeps_totals(old: Board, new: Board) -> bool:
    """Return whether the total of each field in each slot stays in its range."""
    before, after = old.window, new.window
    has_slots = isinstance(before, Rolling) and isinstance(after, Rolling) and before.slot == after.slot
    known = {field.name: field for field in old.score}
    return (
        old.operator == "incr"
        and (has_slots or before == after)
        and all(
            (held := known.get(field.name)) is not None and field.low <= held.low and held.high <= field.high
            for field in new.score
        )
    )


def _changed(old: Board, new: Board, fixed: Mapping[str, tuple[tuple[str, ...], str]]) -> Iterator[str]:
    for part, (names, reason) in fixed.items():
        if getattr(old.shape, part) != getattr(new.shape, part):
            changed = [name for name in names if getattr(old, name) != getattr(new, name)] or names
            yield f"`{changed[0]}` can't change: {reason}"


_RULES: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "window": (("window",), "the data is stored in its slots; only `keep` and `grace` of a window can change"),
    "operation": (("operator", "sort_order"), "the scores were computed with it"),
    "tags": (("ties", "sort_order"), "the ranking stores how ties are broken"),
    "fields": (("score",), "the scores were packed with it"),
    "levels": (("ranks",), "only a board with dense ranks stores its distinct scores, and from the first event on"),
    "zeros": (("zeros",), "members whose amounts add up to zero were dropped, or kept, from the first event on"),
}
_FIXED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "clock": (("clock",), "it assigned the events to slots"),
}
