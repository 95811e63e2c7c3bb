"""Subtract what has left the window, one bounded step at a time."""

from typing import Any

from live.domain.window import EVER, Forever, Sliding
from live.store.board.requests import ExpireEventsRequest, RotatePeriodRequest, RotateRequest
from live.store.board.state import MOST_REPLANS, BoardState


class BoardRotator:
    """Subtract what has left a board's window: old slots, events or periods."""

    def __init__(self, state: BoardState) -> None:
        self.state = state
        self._leaving = ("", "0")  # the slot that is being drained, and the cursor for the next step

    async def rotate(self) -> float | None:
        """Do one bounded step of rotation.

        Returns:
            None when there may be more to do now, else the seconds until something can be due (infinite when that
            depends on the next event).
        """
        state = self.state
        await state.open_to_write()
        window = state.board.window
        if isinstance(window, Forever):
            return float("inf")
        for _ in range(MOST_REPLANS):
            reply = await (self._expire_events(window) if isinstance(window, Sliding) else self._drain())
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
                    state.update_clock(newest, now, latest)
                case _:
                    raise AssertionError(f"the store answered {reply!r}")
        raise state.moved_too_often()

    async def _drain(self) -> list[Any]:
        """Subtract a piece of the oldest slot, or delete the whole oldest period."""
        state, (start, cursor) = self.state, self._leaving
        board, keys, clock = state.board, state.keys, state.planned()
        kept = 0 if clock.current is None else board.window.oldest(clock.current)
        if board.window.tables:
            old = (keys.slot(start), *keys.table(start).all)
            return await state.run(
                state.scripts.rotate_period,
                [keys.meta, keys.slots, *old],
                RotatePeriodRequest(
                    epoch=state.epoch or "",
                    channel=keys.channel,
                    clock=clock,
                    kept=kept,
                    start=int(start) if start else None,
                ),
            )
        return await state.run(
            state.scripts.rotate,
            [*state.table(None).order, keys.meta, keys.slots, keys.slot(start), keys.hidden, state.journal],
            RotateRequest(
                epoch=state.epoch or "",
                channel=keys.channel,
                clock=clock,
                rules=state.rules,
                kept=kept,
                start=int(start) if start else None,
                cursor=cursor,
                count=state.settings.rotation_step,
            ),
        )

    async def _expire_events(self, window: Sliding) -> list[Any]:
        """Subtract the oldest events of a sliding window."""
        state, board, keys = self.state, self.state.board, self.state.keys
        return await state.run(
            state.scripts.expire_events,
            [
                *state.table(None).order,
                keys.meta,
                keys.slots,
                keys.slot(EVER.start),
                keys.log,
                keys.hidden,
                keys.taken,
                state.journal,
            ],
            ExpireEventsRequest(
                epoch=state.epoch or "",
                channel=keys.channel,
                by_event=board.clock == "event",
                window=window.length * 1000,
                count=state.settings.rotation_step,
                rules=state.rules,
                start=EVER.start,
            ),
        )
