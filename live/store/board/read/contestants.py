"""Lists the contestants of a board that have no votes.

The store has no order of contestants. So a list is read in pieces, each at one instant.
"""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from live.domain.event import MAX_KEY_BYTES
from live.domain.ranking import Record
from live.store.board.read.reader import BoardReader, ReadPlan
from live.store.board.requests import ContestantsRequest

_PIECE: Final = 1500  # contestants, which takes the store up to a millisecond
_MOST_PIECES: Final = 20  # that a list of contestants looks at
_START: Final = "0"  # as the cursor of a scan: its start, or its end


class ContestantsPlace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A place in the list of contestants: the cursor of a piece, and the last member before the place."""

    cursor: Annotated[str, Meta(pattern="^[0-9]{1,15}$")] = _START
    after: Annotated[str, Meta(max_length=MAX_KEY_BYTES)] = ""


class Contestants(NamedTuple):
    """Contestants without votes, and the place of the next ones; None at the end."""

    records: Sequence[Record]
    following: ContestantsPlace | None


class _Piece(NamedTuple):
    names: Sequence[tuple[bytes, bytes]]  # with their values
    following: str


async def list_contestants(reader: BoardReader, place: ContestantsPlace | None, most: int) -> Contestants:
    """List up to `most` contestants without votes from a place on, by default from the start.

    They are in the order of their names if there are up to about 1,500, and otherwise in the order of pieces.
    """
    place = place or ContestantsPlace()
    cursor, after = place.cursor, place.after
    found: list[Record] = []
    for _ in range(_MOST_PIECES):
        piece = await _read(reader, cursor)
        left = {record.key: record for record in map(_voteless, piece.names) if record.key > after}
        for member in sorted(left):
            if len(found) == most:
                return Contestants(found, ContestantsPlace(cursor, after))
            found.append(left[member])
            after = member
        cursor, after = piece.following, ""
        if cursor == _START:
            return Contestants(found, None)
    return Contestants(found, ContestantsPlace(cursor, after))


async def _read(reader: BoardReader, cursor: str) -> _Piece:
    def request(plan: ReadPlan) -> ContestantsRequest:
        return ContestantsRequest(clock=plan.clock, suffix=plan.suffix, view=plan.view, cursor=cursor, count=_PIECE)

    def keys(plan: ReadPlan) -> list[str]:
        ranking, reached, _, meta, _ = plan.keys
        return [ranking, reached, reader.state.keys.hidden, meta, reader.state.keys.entrants]

    reply, _ = await reader.run(reader.state.scripts.contestants, request, None, keys)
    _, _, following, found = reply
    return _Piece(list(zip(found[::2], found[1::2], strict=True)), following.decode())


def _voteless(entry: tuple[bytes, bytes]) -> Record:
    """Make the record of a contestant without votes. Its rank is 0."""
    member, metadata = entry
    return Record(member.decode(), 0, 0, metadata=msgspec.Raw(metadata))
