"""The requests of the scripts that read a ranking; see `write.py`."""

from typing import Literal

import msgspec

from live.domain.board import Board
from live.store.board.requests.write import PlannedClock
from live.store.connection.scripts import Text


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a ranking is read.

    Attributes:
        order: `forward`, `backward` or `turned`.
        ranks: as in `Board`.
        tagged: whether names begin with a tag.
        described: whether members may have metadata.
    """

    order: str
    ranks: str
    tagged: bool = False
    described: bool = False


def view_of(board: Board) -> View:
    """Return how the rankings of a board are read."""
    return View(order=board.reading, ranks=board.ranks, tagged=board.tags != "key", described=board.described)


class ReadRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Read consecutive records.

    Attributes:
        clock: the board's clock; None when the result does not depend on it.
        suffix: the end of the names of the fields that hold the total of the ranking.
        view: how the ranking is read.
        mode: `rank`, `after`, `before`, `around` or `score`.
        number: `rank`: the number of records to skip; `after`, `before`, `score`: a score; `around`: the number of
            neighbours on each side.
        name: `after`, `before`: together with `number` a position, whose record need not exist any more; `around`: a
            member.
        limit: the most records to read; `around` does not use it.
        epoch, offset: the position that the caller has read already. If the board is still there, nothing is read.
    """

    clock: PlannedClock | None = None
    suffix: str
    view: View
    mode: Literal["rank", "after", "before", "around", "score"]
    number: int
    name: Text
    limit: int
    epoch: str | None = None
    offset: int | None = None


class LookupRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Look up members, each with a number of neighbours on each side. The other fields are those of `ReadRequest`."""

    clock: PlannedClock | None = None
    suffix: str
    view: View
    members: list[str]
    neighbours: list[int]


class BaselineRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Keep the first `limit` records as the baseline, if one is due. The other fields are those of `ReadRequest`."""

    epoch: str
    clock: PlannedClock
    suffix: str
    view: View
    limit: int


class SlotsRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Read what members hold in slots. `clock` is the board's clock, by which the caller chose the slots."""

    clock: PlannedClock
    members: list[str]
