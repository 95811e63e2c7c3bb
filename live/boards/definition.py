"""The definition of a run-time board: what it may contain, and what may change later. No I/O and no clock."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from live.domain.board import Board
from live.domain.board_file import (
    DEFAULT_TYPE,
    BoardChoice,
    FieldChoice,
    VotesChoice,
    default_max_amount,
    make_board,
    read_table,
)
from live.domain.views import score_facts
from live.domain.window import Duration, choice_of, format_duration, make_window, parse_duration


class RunningChoice(BoardChoice, frozen=True, kw_only=True):
    """The choices of a run-time board. Each choice has a default."""

    frozen: bool = False
    idle_ttl: Duration | None = None


class DefinitionError(ValueError):
    """A definition has mistakes: one invalid choice, or all choices that contradict each other."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


def read_board(board_id: str, choices: Mapping[str, Any]) -> Board:
    """Make the board that some choices define.

    Raises:
        DefinitionError: a choice is invalid, or choices contradict each other.
    """
    if "id" in choices:
        raise DefinitionError(["`id`: the id is the one in the path"])
    try:
        choice = read_table({**choices, "id": board_id}, RunningChoice)
    except ValueError as error:
        raise DefinitionError([str(error)]) from None
    mistakes: list[str] = []
    idle_ttl = None
    if choice.idle_ttl is not None:
        try:
            seconds = parse_duration(choice.idle_ttl)
        except ValueError as error:
            mistakes.append(f"`idle_ttl`: {error}")
        else:
            idle_ttl = int(seconds)
            if seconds < 1 or seconds != idle_ttl:
                mistakes.append(f"`idle_ttl`: {choice.idle_ttl!r} is not a whole number of seconds, 1s or more")
    try:
        board = make_board(choice)
    except ValueError as error:
        mistakes = str(error).split("\n") + mistakes
    if mistakes:
        raise DefinitionError(mistakes)
    return msgspec.structs.replace(board, frozen=choice.frozen, idle_ttl=idle_ttl)


def choices_of(board: Board) -> dict[str, Any]:
    """Return the choices that define a board, as in JSON. Choices with their default, and the id, are left out."""
    journal, weights, plain = board.journal, tuple(board.union.values()), RunningChoice(id=board.id)
    choice = RunningChoice(
        id=board.id,
        title="" if board.title == board.id else board.title,
        types=None if board.union or board.source == {DEFAULT_TYPE} else tuple(sorted(board.source)),
        category=tuple(sorted(board.categories)),
        union=tuple(board.union),
        weights=None if set(weights) <= {1} else weights,
        window=plain.window if board.window == make_window(plain.window) else choice_of(board.window),
        operator=board.operator,
        sort_order=board.sort_order,
        zeros=board.zeros,
        ties=board.ties,
        ranks=board.ranks,
        score=() if board.score is None else tuple(map(FieldChoice.of, board.score.fields)),
        votes=None if board.votes is None else VotesChoice.of(board.votes),
        cap=board.cap,
        max_amount=None if board.max_amount == default_max_amount(weights) else board.max_amount,
        max_members=board.max_members,
        clock=board.clock,
        dedupe_window=format_duration(board.dedupe_window * 1000) if board.dedupe_window else None,
        conflation_interval=None if board.conflation is None else format_duration(board.conflation),
        like_button=board.like_button,
        baseline=board.baseline,
        journal=journal.level,
        journal_events=None if journal.events is None else format_duration(journal.events * 1000),
        journal_periods=None if journal.periods is None else format_duration(journal.periods * 1000),
        visibility=board.visibility,
        **score_facts(board),
        frozen=board.frozen,
        idle_ttl=None if board.idle_ttl is None else format_duration(board.idle_ttl * 1000),
    )
    names = RunningChoice.__struct_fields__
    chosen = {name: getattr(choice, name) for name in names if getattr(choice, name) != getattr(plain, name)}
    return msgspec.json.decode(msgspec.json.encode(chosen), type=dict[str, Any])


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


def forbidden(old: Board, new: Board) -> Iterator[str]:
    """Find changes that are not possible while the board has data, each with the reason."""
    before, after = old.shape, new.shape
    for part, (names, reason) in _FIXED.items():
        if getattr(before, part) != getattr(after, part):
            changed = [name for name in names if getattr(old, name) != getattr(new, name)] or names
            yield f"`{changed[0]}` can't change: {reason}"
    if old.union != new.union:
        yield "`union` and `weights` can't change: the scores were added up with the old values"
    if (old.votes is None) != (new.votes is None):
        yield "`votes` can't be added or removed: votes are stored from the first event on; only the limits can change"
    if new.cap is not None and (old.cap is None or new.cap < old.cap):
        yield "`cap` can only grow or be removed: a record is cut off only when an event arrives"
    if old.cap is not None and old.sort_order != new.sort_order:
        yield "`sort_order` can't change: with a `cap`, the records of the other end were cut off"


_FIXED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "window": (("window",), "the data is stored in its slots; only `keep` and `grace` of a window can change"),
    "operation": (("operator", "sort_order"), "the scores were computed with it"),
    "tags": (("ties", "sort_order"), "the ranking stores how ties are broken"),
    "levels": (("ranks",), "only a board with dense ranks stores its distinct scores, and from the first event on"),
    "fields": (("score",), "the scores were packed with it"),
    "clock": (("clock",), "it assigned the events to slots"),
    "zeros": (("zeros",), "members whose amounts add up to zero were dropped, or kept, from the first event on"),
}
