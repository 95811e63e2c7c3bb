"""Replace the contents of a board while servers use it: by what its journal says, in one step.

The new contents are loaded beside the board and kept up to date with new entries. When few entries are left, the board
is paused: producers wait for some milliseconds. One script then compares the last entry of the journal, and renames the
store keys. Clients see the board before or after, under two editions.
"""

import time
from functools import partial
from typing import Final

import msgspec

from live.boards.definitions import has_rules_of
from live.domain.board import Board
from live.domain.window import Sliding
from live.errors import SetupError, StoreUnavailableError
from live.journal.log.entries import position_of
from live.journal.log.reader import Follower
from live.journal.state.difference import ContentsDifference
from live.journal.state.ranking import newest_slot
from live.journal.state.ruled import NO_CHANGE, Ruled
from live.journal.state.taken import NOTHING, Taken
from live.maintenance.dump import Dumps
from live.settings import Settings
from live.store.board.manage.swap import Beside, Last, NewRules, require_room
from live.store.board.rotation import BoardRotator, step
from live.store.board.state import BoardState
from live.store.connection.client import Store
from live.store.connection.scripts import text

_FEW: Final = 64  # entries that the board waits for, in some milliseconds
_ROUNDS: Final = 100
_PATIENCE: Final = 20  # rounds after which a round that takes a tenth of the pause is short enough
_LONGEST: Final = 600.0  # seconds in which a slot leaves the window
_ATTEMPTS: Final = 10
_MOMENT: Final = 0.02  # seconds
PAUSE: Final = 1000  # milliseconds at most, and half of the write deadline, so that no producer gets an error


async def swap(
    client: Store,
    settings: Settings,
    board: Board,
    epoch: str,
    follower: Follower | Dumps,
    taken: Taken = NOTHING,
    ruled: Ruled = NO_CHANGE,
) -> int:
    """Make the contents of `follower`, which has begun, the contents of a board. Return the board's offset.

    The journal gets the events that are taken back with this swap, which the follower leaves out, and the new rules, by
    which the follower counts. A board without a journal gets what its slots, events and votes say.
    """
    state = BoardState(client, board, settings, born=epoch)
    await state.open()
    beside = await Beside.begin(state)
    try:
        await _require_rules(state)
        await require_room(state)
        difference = ContentsDifference(ruled.board if ruled else board, state.keys)
        swapping = Swapping(state, beside, follower, difference, taken, ruled)
        await swapping.load()
        return await swapping.finish()
    except BaseException:
        await beside.give_up()
        raise


async def _require_rules(state: BoardState) -> None:
    """Check that a board has the rules by which it was opened. No other swap can change them any more."""
    if not await has_rules_of(state.client, state.board):
        raise SetupError(f"the rules of board {state.board.id!r} have just changed: run the command again")


class Swapping:
    """The steps of a swap, after it has begun."""

    def __init__(
        self,
        state: BoardState,
        beside: Beside,
        follower: Follower | Dumps,
        difference: ContentsDifference,
        taken: Taken = NOTHING,
        ruled: Ruled = NO_CHANGE,
    ) -> None:
        self._rotator = BoardRotator(state)
        self._has_periods = state.board.window.tables
        self._is_sliding = isinstance(state.board.window, Sliding)
        self._pause = min(PAUSE, round(500 * state.settings.write_deadline))
        self._beside = beside
        self._follower = follower
        self._difference = difference
        self._ruled = ruled
        self._taken = text(msgspec.msgpack.encode(taken)) if taken else None

    async def load(self) -> None:
        """Write what the follower holds by now beside the board."""
        last = await self._beside.pause()
        await self._beside.write(self._difference.advance(self._follower.contents, last.now))

    async def finish(self) -> int:
        """Catch up with the journal, and swap. Return the board's offset."""
        for _ in range(_ATTEMPTS):
            await self._catch_up()
            offset = await self._swap()
            if offset is not None:
                return offset
            await self._beside.pause()  # producers go on meanwhile
        raise StoreUnavailableError("the board changed in every pause: run the command again when it is less busy")

    async def _swap(self) -> int | None:
        """Pause the board, and try to swap during the first half of the pause. Return None without success."""
        end, found = time.monotonic() + self._pause / 2000, self._difference
        while (left := end - time.monotonic()) > 0:
            last = await self._beside.pause(self._pause // 2 + round(1000 * left))
            await self._write(last)
            swapping = partial(
                self._beside.swap,
                last.link,
                found.sizes,
                found.totals(),
                oldest=found.oldest,
                left=found.left,
                taken=self._taken,
                rules=self._new_rules(last),
            )
            while (outcome := await swapping()) == "due" and self._is_sliding and time.monotonic() < end:
                await step(self._rotator)  # only entries say which place members get when something leaves the window
            if isinstance(outcome, int):
                return outcome
            if not await self._has_rotated() and not self._is_sliding:
                return None  # while a large slot leaves the window, producers go on
        return None

    def _new_rules(self, last: Last) -> NewRules | None:
        if not self._ruled:
            return None
        board, ruled = self._ruled.board, msgspec.Raw(msgspec.msgpack.encode(self._ruled))
        newest = newest_slot(board, self._follower.contents, last.now)
        return NewRules(ruled, board.shape.encode(), newest)

    async def _catch_up(self) -> None:
        """Apply new entries, and let the board rotate, until little is left."""
        end = time.monotonic() + _LONGEST
        for number in range(_ROUNDS):
            while not (has_rotated := await self._has_rotated()) and not self._is_sliding:
                if time.monotonic() > end:
                    raise StoreUnavailableError("a slot leaves the window for too long: run the command again later")
            last = await self._beside.pause()
            behind = position_of(last.link)[0] - position_of(self._follower.contents.link)[0]
            begun = time.monotonic()
            await self._write(last)
            is_short = time.monotonic() - begun <= self._pause / 10_000
            # Something leaves a busy sliding window all the time, and a busy machine writes slowly.
            if (number >= _PATIENCE and is_short) or (behind <= _FEW and has_rotated):
                return
        raise StoreUnavailableError("new entries come faster than they can be written: run the command again later")

    async def _has_rotated(self) -> bool:
        """Rotate the board for a moment. Return whether nothing is due."""
        end = time.monotonic() + _MOMENT
        while not self._has_periods and await step(self._rotator) is None:
            if time.monotonic() > end:
                return False
        return True

    async def _write(self, last: Last) -> None:
        data = await self._follower.advance(last.link)
        await self._beside.write(self._difference.advance(data, last.now))
