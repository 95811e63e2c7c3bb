"""The row of the member that the reader of a page follows."""

from typing import NamedTuple

import structlog

from live.domain.ranking import Page, Record
from live.errors import EpochLostError, StoreUnavailableError
from live.store.board.ledger import Ledger
from live.store.board.read.reader import Selection
from live.web.pages.rendering import Visit, format_of
from live.web.pages.words import gap_words
from live.web.reads.sources import When, read_page

log = structlog.get_logger()


class Followed(NamedTuple):
    """The row of a member that the reader follows. `record` is None if it has no rank, and `gap` the words about it."""

    member: str
    record: Record | None = None
    gap: str = ""


async def followed_of(visit: Visit, ledger: Ledger, key: str, when: When, page: Page) -> Followed | None:
    """Read the row of a member that the reader follows. Return None if the page has it already, or it is unknown."""
    if any(record.member == key for record in page.records):
        return None
    try:
        around = Selection("around", 1, key, 0)
        records = (await read_page(visit.live, ledger, around, when, visit.client.network)).page.records
    except (StoreUnavailableError, EpochLostError) as error:
        log.warning("serving a page without its followed member", board=ledger.state.board.id, reason=str(error))
        return None
    place = next((place for place, record in enumerate(records) if record.member == key), None)
    if place is None:
        return Followed(key)
    above, board = records[place - 1] if place else None, ledger.state.board
    score_format = format_of(visit.language, board)
    gap = "" if board.score else gap_words(visit.language, records[place], above, None, score_format)
    return Followed(key, records[place], gap)
