"""Preview a new board: compute what it would show from the latest events of other boards."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import Final

import msgspec
from sqlalchemy import Connection

from live.errors import ProblemError
from live.journal.log.entries import Add
from live.journal.log.reader import entries_of
from live.journal.log.timelines import find_timeline
from live.journal.past.worker import database_of
from live.settings import Settings

_ADD: Final = msgspec.msgpack.Decoder(Add)
_MOST: Final = 1_000_000  # maximum amounts that a preview reads
_COMBINE: Final[Mapping[str, Callable[[int, int], int]]] = {
    "incr": int.__add__, "set": lambda _held, amount: amount, "max": max, "min": min,
}  # fmt: skip


def preview_top(
    settings: Settings, boards: Sequence[tuple[str, str]], since: int, operation: str, order: str, limit: int
) -> list[tuple[str, int]]:
    """Return the first members that a new board would have, with their scores.

    Args:
        settings: the settings of the server.
        boards: the boards whose events the new board would count, each with its epoch.
        since: the time from which events count, in microseconds since 1970.
        operation: how an amount changes a score; a value of `Board.operation`.
        order: `asc` if the lowest score is first.
        limit: how many members to return.

    Raises:
        ProblemError: `past_too_large`, if the boards counted too many amounts since that time.
    """

    def work(connection: Connection) -> list[tuple[str, int]]:
        combine, scores, count = _COMBINE[operation], dict[str, int](), 0
        for board, epoch in boards:
            timeline = find_timeline(connection, settings.key_prefix, board, epoch)
            if timeline is None:
                continue
            for head, body in entries_of(connection, timeline, since=since):
                if head.kind != "add" or head.time < since:
                    continue
                for member, amount in _amounts(_ADD.decode(body)):
                    scores[member] = combine(scores[member], amount) if member in scores else amount
                    count += 1
                if count > _MOST:
                    raise ProblemError("past_too_large", f"the boards counted more than {_MOST:,} amounts in this time")
        found = [(member, score) for member, score in scores.items() if score or operation != "incr"]
        first = nsmallest if order == "asc" else nlargest
        return first(limit, found, key=lambda one: one[1])

    return database_of(settings).work(work)


def _amounts(batch: Add) -> Iterator[tuple[str, int]]:
    """Yield the members of a batch, each with its amount."""
    # Boards with a sliding window have each amount twice: in `events`, and in the sums of `groups`.
    for part in batch.groups if batch.events is None else [batch.events]:
        yield from zip(part.members, part.amounts, strict=True)
