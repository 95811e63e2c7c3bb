"""Correct the score of a member: an administrator adds to it or sets it, as a batch of its own."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from live.domain.board import Board
from live.domain.event import make_entry
from live.domain.window import Sliding
from live.errors import REFUSALS, ProblemError, StoreUnavailableError
from live.store.board.state import BoardState
from live.store.board.write.plan import Plan, SlotPlan, place_of
from live.store.board.write.writer import BoardWriter

CORRECTOR: Final = ":correction"
"""The producer of corrections in the journal. No API key can have this id."""

_ATTEMPTS: Final = 100  # each one means that the member received something between two calls
CODES: Final = {b"frozen": "frozen", b"crowded": "board_full", b"unregistered": "entrant_unknown",
                 b"range": "score_out_of_range"}  # fmt: skip


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the score of a member: `add` to it, or set it to `score`. Exactly one of them is given.

    `time` (milliseconds since 1970) chooses the slot or the period. None means the current one.
    """

    member: str
    reason: str
    add: int | None = None
    score: int | None = None
    time: int | None = None


class Corrected(msgspec.Struct, frozen=True):
    """The score of a member before and after a correction. `before` is null if the member had no score."""

    before: int | None
    score: int


async def correct(writer: BoardWriter, correction: Correction) -> Corrected:
    """Correct the score of a member exactly once, whatever others change meanwhile.

    Raises:
        ProblemError: `correction_refused`.
        StoreUnavailableError, JournalBehindError, EpochLostError: as `BoardWriter.add`.
    """
    state = writer.state
    await state.open_to_write()
    future = round(state.settings.max_future * 1000)
    for _ in range(_ATTEMPTS):
        held = await read_held(state, [correction.member])
        attempt = _Attempt(state, correction, held[correction.member], future)
        match await writer.put(attempt.fill, future):
            case [b"ok", offset, *_]:
                if not await writer.is_in_sql(int(offset)):
                    raise StoreUnavailableError(f"board {state.board.id}: another server took over", unknown=True)
                return Corrected(attempt.before, attempt.score)
            case [b"nothing"]:
                if attempt.refused:
                    raise ProblemError("correction_refused", REFUSALS[attempt.refused])
                return Corrected(attempt.before, attempt.score)
            case [b"changed"]:
                continue
            case [reason, *_]:
                raise ProblemError("correction_refused", REFUSALS[CODES[reason]])
    raise StoreUnavailableError(f"board {state.board.id}: the score changed {_ATTEMPTS} times in a row")


async def read_held(state: BoardState, members: Sequence[str]) -> dict[str, dict[int, bytes]]:
    """Read what members have in each slot; empty for nothing. The script checks that nothing has changed since."""
    starts = [int(start) for start in await state.call("ZRANGE", state.keys.slots, 0, -1)]
    keys = [state.keys.slot(start) for start in starts]
    rows = await state.client.calls([(key, ("HMGET", key, *members)) for key in keys])
    return {
        member: {start: row[place] or b"" for start, row in zip(starts, rows, strict=True)}
        for place, member in enumerate(members)
    }


class _Attempt:
    """One attempt to apply a correction, on what the member was seen to hold in each slot.

    Attributes:
        refused: the code of the refusal; empty if there is none.
        before: the score before, as far as slots in the window hold it.
        score: the score after the correction.
    """

    def __init__(self, state: BoardState, correction: Correction, held: Mapping[int, bytes], future: int) -> None:
        self.refused = ""
        self.before: int | None = None
        self.score = 0
        self._state = state
        self._correction = correction
        self._held = held
        self._future = future
        self._is_clock_known = False  # the store tells the time when it refuses a plan

    def fill(self, board: Board, plan: Plan) -> None:
        """Plan the correction by the board's clock."""
        start = self._start(board, plan)
        self._is_clock_known = True
        self.refused = start if isinstance(start, str) else ""
        if isinstance(start, str):
            return
        window, correction = board.window, self._correction
        oldest = start if window.tables else window.oldest(start if plan.reached is None else plan.reached)
        counted = [
            int(value) for at, value in self._held.items() if value and (at == start if window.tables else at >= oldest)
        ]
        is_sum = board.operator == "incr"
        self.before = (sum(counted) or (None if is_sum else 0)) if counted else None  # a sum of zero is no score
        self.score = correction.score if correction.score is not None else (self.before or 0) + (correction.add or 0)
        if self.score == (self.before or 0 if is_sum else self.before):
            return
        if board.score is not None and not 0 <= self.score < board.score.count:
            self.refused = "score_out_of_range"
            return
        amount = self.score - (self.before or 0) if is_sum else self.score
        plan.producers, plan.reason, plan.held = [CORRECTOR], correction.reason, {correction.member: self._held}
        plan.slots = {start: SlotPlan({correction.member: amount}, {correction.member: -1}, {}, [], [], {})}
        if isinstance(window, Sliding):
            time = plan.now if board.clock == "event" and correction.time is None else correction.time
            plan.events = [(time, amount, correction.member)]

    def _start(self, board: Board, plan: Plan) -> int | str:
        """Return the slot of the correction, or the code of its refusal."""
        time = self._correction.time
        if time is None:
            return "time_required" if plan.current is None else plan.current
        newest = self._state.clock.now + self._future if self._is_clock_known else None
        open_to_all = msgspec.structs.replace(board, votes=None)  # a contest that has ended can be corrected
        return place_of(plan, open_to_all, make_entry(self._correction.member, 0, time), newest)
