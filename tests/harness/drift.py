"""Boards of every kind to compare with their journals, and a function that makes a value wrong."""

from typing import Final

from live.domain.choices import Votes
from live.domain.event import Extra
from live.domain.window import Forever, Periods, Rolling, Sliding
from tests.harness.boards import built
from tests.harness.compared import Compared

VOTE: Final = built(
    id="vote", title="vote", window=Forever(), votes=Votes(per_key=9, registered=True), ties="key", ranks="dense"
)
BOARDS: Final = {
    board.id: board
    for board in (
        built(id="first", title="first", window=Rolling(86_400, 3600), ties="first"),
        built(id="key", title="key", window=Rolling(86_400, 3600), ties="key", ranks="dense"),
        built(id="last", title="last", window=Periods(unit="day", last=3), ties="last"),
        built(id="days", title="days", window=Periods(unit="day"), ties="last"),
        built(id="ever", title="ever", window=Forever(), ties="first", sort_order="asc"),
        built(id="slide", title="slide", window=Sliding(86_400), ties="first"),
        built(id="best", title="best", window=Forever(), operator="best", cap=3, ties="first"),
        built(id="set", title="set", window=Periods(unit="day"), operator="set", ties="key"),
        VOTE,
    )
}
SCORES: Final = (("ann", 5), ("bob", 7), ("cat", 2))


async def fill(board: Compared) -> None:
    """Count some events, hide a member, and register some members in a contest."""
    moderation = board.ledger.moderation
    if board.board.votes is not None:
        for member in ("ann", "bob", "cat", "dan"):
            await moderation.enter(member, b'{"n":1}')
        for number in range(3):
            extra = Extra(f"voter{number}")
            await board.add(*((member, 1) for member, _ in SCORES[: number + 1]), extra=extra)
    else:
        await board.add(*SCORES)
        await board.add(("ann", 2), ("bob", 1))
    await moderation.hide("cat", hidden=True)


async def slot_of(board: Compared) -> str:
    """The store key of the only slot, without the prefix that all store keys of the board share."""
    (start,) = await board.do("ZRANGE", "slots", 0, -1)
    return f"slot:{start.decode()}"


async def wrong_value(board: Compared) -> None:
    """Set the value of `ann` in the only slot to 50."""
    await board.do("HSET", await slot_of(board), "ann", 50)
