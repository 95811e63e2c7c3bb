"""The requests of the scripts that read a board. See `live.store.board.requests`."""

from typing import Literal

import msgspec

from live.domain.board import Board
from live.store.board.requests import PlannedClock
from live.store.connection.scripts import Text


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a ranking is read.

    Attributes:
        order: `forward`, `backward` or `turned`.
        ranks: `ordinal`, `dense` or `competition`.
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


class RankingRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Read a ranking.

    Attributes:
        clock: the board's clock; None when the result does not depend on it.
        suffix: the end of the names of the fields that hold the total of the ranking.
        view: how the ranking is read.
    """

    clock: PlannedClock | None = None
    suffix: str
    view: View


class ReadRequest(RankingRequest, kw_only=True, omit_defaults=True):
    """Read consecutive records.

    Attributes:
        mode: `rank`, `after`, `before`, `around` or `score`.
        number: `rank`: the number of records to skip; `after`, `before`, `score`: a score; `around`: the number of
            neighbours on each side.
        name: `after`, `before`: the name of the record after or before which to read, which need not exist any
            more; `around`: a member.
        limit: the most records to read; `around` does not use it.
        epoch, offset: the position at which the caller has read these records before. If the board is still at that
            position, the reply has no records.
    """

    mode: Literal["rank", "after", "before", "around", "score"]
    number: int
    name: Text
    limit: int
    epoch: str | None = None
    offset: int | None = None


class LookupRequest(RankingRequest, kw_only=True, omit_defaults=True):
    """Look up members, each with a number of neighbours on each side."""

    members: list[str]
    neighbours: list[int]


class ContestantsRequest(RankingRequest, kw_only=True, omit_defaults=True):
    """Read a piece of the contestants.

    Attributes:
        cursor: what the last piece returned, or `0`.
        count: about how many contestants to look at.
        voted: whether to return contestants that have votes, too.
    """

    cursor: str
    count: int
    voted: bool = False


class BaselineRequest(RankingRequest, kw_only=True, omit_defaults=True):
    """Take a mark of the ranking if one is due, and find the baseline.

    Attributes:
        epoch: the epoch of the board.
        limit: how many records to read.
        most: the most members of a mark.
        begun: when the day or week began whose start is the baseline; None if the baseline is an hour old.
        ends: when this day or week ends.
        mark: a mark of this process, to which the next digests are added; None to look whether a mark is due.
    """

    epoch: str
    limit: int
    most: int
    begun: int | None = None
    ends: int | None = None
    mark: str | None = None


class SlotsRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Read what members hold in slots. `clock` is the board's clock, by which the caller chose the slots.

    `sizes` has the number of slots in each group. The values in the slots of a group are added up.
    """

    clock: PlannedClock
    members: list[str]
    sizes: list[int]
