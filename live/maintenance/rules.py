"""Give a board other rules and keep its history: its events are counted again by the new rules, and then swapped in."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from sqlalchemy import Connection, func, select

from live.boards.definitions import has_rules_of
from live.domain.board import Board
from live.domain.meaning import says
from live.errors import SetupError
from live.journal.database import Database
from live.journal.log.reader import Follower, TooOldError
from live.journal.log.timelines import find_timeline
from live.journal.schema import SEGMENT
from live.journal.state.ruled import FOREVER, Ruled
from live.journal.state.snapshot import Snapshot
from live.journal.upkeep.archive import lost_periods
from live.maintenance.swap import swap
from live.maintenance.void import VoidedScore, changed_most, instant, scores_now
from live.settings import Settings
from live.store.board.state import BoardState
from live.store.connection.client import Store
from live.store.connection.loss import require_no_loss

_LOADED: Final = 60_000  # amounts that a swap loads in a second


class RuleChange(msgspec.Struct, kw_only=True, frozen=True):
    """What a change of rules does to a board."""

    board: Annotated[str, says("Id of the board.")]
    counts_again: Annotated[bool, says("Whether the server has to count the events again.")] = True
    since: Annotated[str | None, says("Time from which on the journal has every entry of the board.")] = None
    entries: Annotated[int, says("How many entries it has in SQL.")] = 0
    seconds: Annotated[float, says("About how long it takes.")] = 0.0
    members: Annotated[int, says("How many members get another score, or none.")] = 0
    periods: Annotated[int, says("How many periods of the archive the board can't show by these rules.")] = 0
    examples: Annotated[list[VoidedScore], says("The members whose scores change most.")] = []


async def change_rules(  # noqa: PLR0913 - of what, by what, and how
    client: Store,
    settings: Settings,
    database: Database,
    epoch: str,
    name: str,
    new: Board,
    earlier: Sequence[Board],
    *,
    dry: bool,
) -> RuleChange:
    """Count the events of a board by other rules, and unless `dry`, make the result the contents of the board.

    `name` tells the change from others. `earlier` are the rules that the board had until now, the last ones at the end.

    Raises:
        SetupError: the journal does not say enough about the events.
    """
    old = earlier[-1]
    await require_no_loss(client, old.id)
    if await has_rules_of(client, new):
        return RuleChange(board=old.id)
    begun = time.monotonic()
    state = BoardState(client, old, settings, born=epoch)
    await state.open()
    ruled = Ruled.by(name, new, state.clock.now if new.clock == "server" else state.clock.latest, earlier)
    follower = Follower(client, database, old.id, epoch, ruled=ruled)
    try:
        await follower.begin(lambda *_: None)
        after = await scores_now(state, follower, new)
    except TooOldError as error:
        raise SetupError(f"{error}: {_possible(error.time, ruled, new, state)}") from None
    _require_range(new, follower.contents, len(after))
    before = Follower(client, database, old.id, epoch)
    await before.begin(lambda *_: None)
    members, examples = changed_most(await scores_now(state, before, old), after)
    amounts = sum(map(len, follower.contents.slots.values())) + len(follower.contents.log)
    entries, began = await database.run(_extent, old.id, epoch)
    lost = await database.run(lost_periods, old, new, epoch, {*follower.contents.slots})
    found = RuleChange(
        board=old.id,
        since=None if began is None else instant(began),
        entries=entries,
        seconds=round(time.monotonic() - begun + amounts / _LOADED, 1),
        members=members,
        periods=lost,
        examples=examples,
    )
    if not dry:
        await swap(client, settings, old, epoch, follower, ruled=ruled)
    return found


def _possible(reach: int, ruled: Ruled, new: Board, state: BoardState) -> str:
    """Say from when a change is possible. The journal has every event since `reach` (ms, by the clock of the board)."""
    if ruled.since == FOREVER:
        return "it needs all of them"
    now = (state.clock.now if new.clock == "server" else state.clock.latest or 0) // 1000
    at = datetime.fromtimestamp(reach // 1000 + now - ruled.since, UTC)
    return f"this is possible from {at.isoformat()} on, or by rules that need less"


def _require_range(new: Board, data: Snapshot, members: int) -> None:
    """Raise an error if a score leaves the range of a board by its new rules, or if it has too many members."""
    for slot in data.slots.values():
        for member, amount in slot.items():
            if abs(amount) > new.most:
                raise SetupError(f"by these rules, the score of {member!r} leaves the range of scores")
    most = max((members, *map(len, data.slots.values())))
    if most > new.max_members:
        raise SetupError(f"by these rules, the board has {most} members at once: raise its `max_members`")


def _extent(connection: Connection, board: str, epoch: str) -> tuple[int, int | None]:
    """Return how many entries of a board SQL has, and when the first was made, in microseconds since 1970."""
    timeline = find_timeline(connection, board, epoch)
    of_board = SEGMENT.c.life == (0 if timeline is None else timeline.id)
    row = connection.execute(select(func.sum(SEGMENT.c.entries), func.min(SEGMENT.c.began)).where(of_board)).one()
    return int(row[0] or 0), row[1]
