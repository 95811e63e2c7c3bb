"""Finds members of a board by how the words of their names or titles begin.

The store orders members by score alone. So a search looks at the names of a board one by one, from the first rank on,
and stops after a bounded number. The reply then has a cursor, with which the client continues.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from live.domain.ranking import Record
from live.domain.text import begins_word, form_of
from live.store.board.ledger import Ledger
from live.store.board.read.contestants import ContestantsPlace, list_contestants
from live.web.reads.boards import Start, read_cursor
from live.web.services import Live

LONGEST_PREFIX: Final = 256  # characters

_PIECE: Final = 1500  # names looked at in one read, which takes the store and this process a millisecond or two
_MOST_PIECES: Final = 20


class SearchPlace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The place at which a search goes on: after a number of ranked members, or among contestants without votes."""

    start: Start = 0
    contestants: ContestantsPlace | None = None


class MemberSearch(NamedTuple):
    """What to find: up to `most` members, in the period that starts at `period`, or in the current period for None."""

    prefix: str
    most: int
    place: SearchPlace
    period: int | None


class Found(NamedTuple):
    """Members that have a rank, contestants without votes, and the place of the next search.

    `following` is None at the end of the board.
    """

    ranked: Sequence[str]
    voteless: Sequence[Record]
    following: SearchPlace | None


def decode_place(text: str | None) -> SearchPlace:
    """Read a cursor of an earlier reply.

    Raises:
        ProblemError: `cursor_invalid`.
    """
    return SearchPlace() if text is None else read_cursor(text, SearchPlace)


async def find_members(live: Live, ledger: Ledger, client: str, wanted: MemberSearch) -> Found:
    """Find members with a word in their name or title that begins with a text, the first ranks first.

    Accents and case do not matter.

    The first names that a new search returns include the text itself: a member with this name may have any rank, or
    may not exist. Each piece waits for a turn of the client.

    Raises:
        ProblemError: `overloaded`, when too many requests wait.
    """
    exact = [wanted.prefix] if wanted.place == SearchPlace() else []
    hits: list[str] = []
    voteless: list[Record] = []
    place: SearchPlace | None = wanted.place
    for _ in range(_MOST_PIECES):
        if place is None or len(hits) + len(voteless) == wanted.most:
            break
        room = wanted.most - len(hits) - len(voteless)
        async with live.drawings.turn(client):
            if place.contestants is None:
                more, place = await _ranked(live, ledger, wanted, place.start, room)
                hits += more
            else:
                others, place = await _voteless(live, ledger, wanted, place, room)
                voteless += others
    return Found(list(dict.fromkeys([*exact, *hits])), voteless, place)


async def _ranked(
    live: Live, ledger: Ledger, wanted: MemberSearch, start: int, room: int
) -> tuple[Sequence[str], SearchPlace | None]:
    """Look at a piece of the ranking. Return up to `room` members, and the next place."""
    page = await ledger.reader.read(_PIECE, start=start, period=wanted.period)
    names = [record.member for record in page.records]
    matching = await _matching(live, names, wanted.prefix)
    if len(matching) > room:
        return matching[:room], SearchPlace(start + names.index(matching[room]))
    if names and start + len(names) < page.rank_count:
        return matching, SearchPlace(start + len(names))
    registers = ledger.state.board.votes is not None and wanted.period is None
    return matching, SearchPlace(start + len(names), ContestantsPlace()) if registers else None


async def _voteless(
    live: Live, ledger: Ledger, wanted: MemberSearch, place: SearchPlace, room: int
) -> tuple[Sequence[Record], SearchPlace | None]:
    """Look at a piece of the contestants without votes. Return up to `room` of them, and the next place."""
    piece = await list_contestants(ledger.reader, place.contestants, _PIECE)
    matching = await _matching(live, [record.member for record in piece.records], wanted.prefix)
    found = [record for record in piece.records if record.member in set(matching[:room])]
    if len(matching) > room:
        cursor = (place.contestants or ContestantsPlace()).cursor
        return found, SearchPlace(place.start, ContestantsPlace(cursor, matching[room - 1]))
    return found, None if piece.following is None else SearchPlace(place.start, piece.following)


async def _matching(live: Live, names: Sequence[str], prefix: str) -> list[str]:
    wanted = form_of(prefix)
    titles = await live.items.of(names)
    return [
        name
        for name in names
        if begins_word(wanted, form_of(name)) or (name in titles and begins_word(wanted, form_of(titles[name].title)))
    ]
