"""Lists the contestants of a board, all of them or those that have no votes, and reads the votes of an actor.

The store has no order of contestants. So a list is read in pieces, each at one instant.
"""

from collections.abc import Collection, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from live.domain.event import MAX_MEMBER_BYTES
from live.domain.ranking import Record
from live.domain.views import Entrant
from live.store.board.read.reader import BoardReader, ReadPlan
from live.store.board.requests import ContestantsRequest
from live.store.board.state import BoardState
from live.store.board.write.slot_assignment import voter_digests

_PIECE: Final = 1500  # contestants in one call, which takes the store up to a millisecond
_MOST_PIECES: Final = 20  # pieces that one list of contestants reads
START: Final = "0"
"""The cursor of the first piece. A piece with this cursor as `following` is the last one."""


class ContestantsPlace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A place in the list of contestants: the cursor of a piece, and the last listed member of the piece."""

    cursor: Annotated[str, Meta(pattern="^[0-9]{1,15}$")] = START
    after: Annotated[str, Meta(max_length=MAX_MEMBER_BYTES)] = ""


class Contestants(NamedTuple):
    """Contestants without votes, and the place at which the list continues; None at the end."""

    records: Sequence[Record]
    following: ContestantsPlace | None


class EntrantsPiece(NamedTuple):
    """A piece of the contestants: the epoch of the board, and the cursor of the next piece, `0` at the end."""

    epoch: str
    entrants: Sequence[Entrant]
    following: str


async def list_contestants(reader: BoardReader, place: ContestantsPlace | None, most: int) -> Contestants:
    """List up to `most` contestants without votes from a place on, by default from the start.

    Up to about 1,500 contestants are in the order of their names. If there are more, only those of a piece are.
    """
    place = place or ContestantsPlace()
    cursor, after = place.cursor, place.after
    found: list[Record] = []
    for _ in range(_MOST_PIECES):
        piece = await read_piece(reader, cursor, _PIECE, voted=False)
        left = {  # contestants without votes have rank 0
            one.member: Record(one.member, 0, 0, metadata=one.metadata) for one in piece.entrants if one.member > after
        }
        for member in sorted(left):
            if len(found) == most:
                return Contestants(found, ContestantsPlace(cursor, after))
            found.append(left[member])
            after = member
        cursor, after = piece.following, ""
        if cursor == START:
            return Contestants(found, None)
    return Contestants(found, ContestantsPlace(cursor, after))


async def read_piece(reader: BoardReader, cursor: str, count: int, *, voted: bool) -> EntrantsPiece:
    """Read about `count` contestants that are not hidden. Without `voted`, leave out contestants that have votes.

    The first cursor of a walk is START, and the walk has ended when START comes back. The walk finds each contestant
    that stays registered meanwhile.
    """

    def request(plan: ReadPlan) -> ContestantsRequest:
        return ContestantsRequest(view=plan.view, ruled=plan.ruled, cursor=cursor, count=count, voted=voted)

    def keys(plan: ReadPlan) -> list[str]:
        ranking, reached, _, meta, _ = plan.keys
        return [ranking, reached, reader.state.keys.hidden, meta, reader.state.keys.entrants]

    reply, _ = await reader.run(reader.state.scripts.contestants, request, None, keys)
    epoch, _, following, found = reply
    parts = zip(found[::3], found[1::3], found[2::3], strict=True)
    entrants = [Entrant(member.decode(), int(score or 0), msgspec.Raw(metadata)) for member, metadata, score in parts]
    return EntrantsPiece(epoch.decode(), entrants, following.decode())


class GivenVotes(NamedTuple):
    """The number of votes that an actor has given in a period, and how many of them each member has."""

    total: int
    by_member: dict[str, int]


async def read_given(state: BoardState, actor: str, members: Collection[str], slot: int | None) -> GivenVotes:
    """Read the votes of an actor for some members, because the store has only digests.

    `slot` is the start of the period, if the board has periods.
    """
    digests = [voter_digests(state.secret, actor, member) for member in members]
    voter = digests[0][0] if digests else voter_digests(state.secret, actor, "")[0]
    table = state.table(slot)
    total, *counts = await state.client.read(table.votes, "HMGET", table.votes, voter, *(pair for _, pair in digests))
    given = {member: int(count) for member, count in zip(members, counts, strict=True) if count}
    return GivenVotes(int(total or 0), given)
