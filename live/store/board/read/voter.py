"""Reads the votes of one actor. The store has only digests, so the caller says for which members to look."""

from collections.abc import Collection
from typing import NamedTuple

from live.store.board.state import BoardState
from live.store.board.write.slot_assignment import voter_digests


class GivenVotes(NamedTuple):
    """The number of votes that an actor has given in a period, and how many of them each member has."""

    total: int
    by_member: dict[str, int]


async def read_given(state: BoardState, actor: str, members: Collection[str], slot: int | None) -> GivenVotes:
    """Read the votes of an actor for some members. `slot` is the start of the period, if the board has periods.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    digests = [voter_digests(state.secret, actor, member) for member in members]
    voter = digests[0][0] if digests else voter_digests(state.secret, actor, "")[0]
    table = state.table(slot)
    total, *counts = await state.client.read(table.votes, "HMGET", table.votes, voter, *(pair for _, pair in digests))
    given = {member: int(count) for member, count in zip(members, counts, strict=True) if count}
    return GivenVotes(int(total or 0), given)
