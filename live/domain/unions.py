"""Mistakes between a union and the boards that it adds up."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from live.domain.board import Board
from live.domain.names import unknown

_COMPARED: Final = frozenset({"window", "clock"})


def union_mistakes(boards: Mapping[str, Board], unsure: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """All mistakes between unions and their boards.

    `unsure` holds the ids of boards with mistakes of their own, and the choices of each that are unknown because of
    them.
    """
    for board in boards.values():
        yield from part_mistakes(board, board.union, boards, unsure)


def part_mistakes(
    board: Board, parts: Collection[str], boards: Mapping[str, Board], unsure: Mapping[str, frozenset[str]]
) -> Iterator[str]:
    """Mistakes between a union and some of its parts. `unsure` is as in `union_mistakes`."""
    for part in board.union:
        if part not in parts:
            continue
        fed = boards.get(part)
        unknown_choices = unsure.get(part, frozenset()) | unsure.get(board.id, frozenset())
        if fed is None:
            if part not in unsure:
                known = {*boards, *unsure} - {"", board.id}
                yield f"board {board.id!r}: its union: {unknown('board', part, known)}"
        elif fed.union:
            yield f"board {board.id!r}: its union names {part!r}, which is a union itself; name its boards instead"
        elif fed.operator != "incr" or fed.votes is not None:
            yield f"board {board.id!r}: its union names {part!r}, whose scores are not plain sums"
        elif (fed.window, fed.clock) != (board.window, board.clock) and not unknown_choices & _COMPARED:
            yield f"board {board.id!r}: its union names {part!r}, which has another window or clock"
