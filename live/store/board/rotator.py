"""Letting go of what leaves the window, one bounded step at a time."""

from typing import Any

from live.domain.window import EVER, Forever, Sliding
from live.errors import StoreUnavailableError
from live.store.board.requests import ExpireEventsRequest, RotatePeriodRequest, RotateRequest, rules_of
from live.store.board.state import MOST_REPLANS, Life
from live.store.connection.client import store_errors


class Rotating(Life):
    """A board whose old slots, events or periods are let go."""

    _leaving = ("", "0")  # the slot that is being drained, and where the next step goes on

    async def rotate(self) -> float | None:
        """Do one bounded step of rotation.

        Returns:
            None when there may be more to do now, else the seconds until something can be due (infinite when only an
            event can tell).

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        await self.open_to_write()
        window = self.board.window
        if isinstance(window, Forever):
            return float("inf")
        for _ in range(MOST_REPLANS):
            async with store_errors():
                reply = await (self._expire_events(window) if isinstance(window, Sliding) else self._let_go())
            match reply:
                case [b"moved", _, cursor]:
                    self._leaving = (self._leaving[0], cursor.decode())
                    return None
                case [b"moved", *_]:
                    return None
                case [b"slot", oldest]:
                    self._leaving = (oldest.decode(), "0")
                    return None
                case [b"idle", wait]:
                    self._leaving = ("", "0")
                    return float("inf") if int(wait) < 0 else int(wait) / 1000
                case [b"replan", newest, now, latest]:
                    self._hear(newest, now, latest)
                case _:
                    raise self._lost(reply)
        raise StoreUnavailableError(f"the clock of board {self.board.id} moved {MOST_REPLANS} times in a row")

    async def _let_go(self) -> list[Any]:
        """Drain the oldest slot for a bit, or where each has a table drop it whole."""
        board, keys, (start, cursor) = self.board, self.keys, self._leaving
        clock = self._planned()
        kept = 0 if clock.current is None else board.window.oldest(clock.current)
        if board.window.tables:
            old = (keys.slot(start), *keys.table(start).all)
            return await self._scripts.rotate_period(
                self._client,
                [keys.meta, keys.slots, *old],
                RotatePeriodRequest(
                    epoch=self.epoch or "",
                    channel=keys.channel,
                    clock=clock,
                    kept=kept,
                    start=int(start) if start else None,
                ),
            )
        return await self._scripts.rotate(
            self._client,
            [*self._table(None).order, keys.meta, keys.slots, keys.slot(start), keys.hidden],
            RotateRequest(
                epoch=self.epoch or "",
                channel=keys.channel,
                clock=clock,
                rules=rules_of(board),
                kept=kept,
                start=int(start) if start else None,
                cursor=cursor,
                count=self._settings.rotation_step,
            ),
        )

    async def _expire_events(self, window: Sliding) -> list[Any]:
        """Take the oldest events out of a sliding window."""
        board, keys = self.board, self.keys
        return await self._scripts.expire_events(
            self._client,
            [*self._table(None).order, keys.meta, keys.slots, keys.slot(EVER.start), keys.log, keys.hidden, keys.taken],
            ExpireEventsRequest(
                epoch=self.epoch or "",
                channel=keys.channel,
                by_event=board.clock == "event",
                window=window.length * 1000,
                count=self._settings.rotation_step,
                rules=rules_of(board),
                start=EVER.start,
            ),
        )
