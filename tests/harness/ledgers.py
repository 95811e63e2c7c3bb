"""Likes, rotation and scores of a board with the real scripts."""

from live.domain.event import Entry, make_entry
from live.store.board.ledger import Ledger
from tests.harness.boards import rolling_board

HOUR = 3600
T0 = 1_431_856_800  # 17 May 2015 10:00 UTC
EVENT_BOARD = rolling_board(clock="event")


def like(member: str, amount: int = 1, at: int | None = None) -> Entry:
    """A like of a member; `at` is in seconds."""
    return make_entry(member, amount, None if at is None else at * 1000)


async def drain(ledger: Ledger) -> int:
    """Rotate until nothing is due. Returns the number of steps."""
    steps = 0
    while await ledger.rotator.rotate() is None:
        steps += 1
    return steps


async def scores(ledger: Ledger) -> dict[str, int]:
    """The scores of the whole board."""
    page = await ledger.reader.read(1000)
    assert page.rank_count == len(page.records)
    assert page.total_score == sum(record.score for record in page.records)
    return {record.member: record.score for record in page.records}
