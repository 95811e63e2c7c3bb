"""Correct the score of a member: an administrator adds to it or sets it, as a batch of its own."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from live.domain.board import Board
from live.domain.event import make_entry
from live.domain.meaning import says
from live.domain.window import Sliding
from live.errors import StoreUnavailableError
from live.store.board.batch import NO_METADATA, SlotEvents
from live.store.board.state import BoardState
from live.store.board.write.slot_assignment import Plan, assign_slot
from live.store.board.write.writer import BoardWriter

CORRECTOR: Final = ":correction"
"""The producer of corrections in the journal. No API key can have this id."""

_ATTEMPTS: Final = 100  # each failed attempt means that the member received something between reading and writing
_ATTEMPTS_OF_SEVERAL: Final = 10  # after these, the caller can correct fewer members at once
CODES: Final = {b"frozen": "frozen", b"crowded": "board_full", b"unregistered": "entrant_unknown",
                 b"range": "score_out_of_range"}  # fmt: skip


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the score of a member: `add` to it, or set it to `score`. Exactly one of them is given."""

    member: str
    reason: str
    add: int | None = None
    score: int | None = None
    time: int | None = None  # chooses the slot or the period (milliseconds since 1970); None means the current one


class ChangedError(StoreUnavailableError):
    """The members changed again and again between reading and correcting them. Nothing was corrected."""


class Corrected(msgspec.Struct, frozen=True):
    """The score of a member before and after a correction. `before` is null if the member had no score."""

    before: Annotated[int | None, says("The score before the correction. Null if the member had no score.")]
    score: Annotated[int, says("The score after the correction.")]


async def correct(writer: BoardWriter, corrections: Sequence[Correction]) -> list[Corrected | str]:
    """Correct the scores of distinct members exactly once, even if other processes change them meanwhile.

    Return the result of each correction, or the code of its refusal. After a `ChangedError`, correct fewer members.
    """
    state = writer.state
    await state.open_to_write()
    refused: dict[str, str] = {}
    attempts = _ATTEMPTS if len(corrections) == 1 else _ATTEMPTS_OF_SEVERAL
    for _ in range(attempts):
        left = [correction for correction in corrections if correction.member not in refused]
        if not left:
            break
        held = await read_held(state, [correction.member for correction in left])
        attempt = _Attempt(state, left, held, writer.max_future)
        match await writer.put(attempt.fill):
            case [b"ok" | b"nothing", *_]:
                outcomes = refused | attempt.outcomes
                return [outcomes[correction.member] for correction in corrections]
            case [b"changed"]:
                continue
            case [reason, *words]:
                # In a reply `crowded`, a slot comes before each member. In `range`, also a value after each member.
                step = {b"crowded": 2, b"range": 3}.get(reason, 1)
                named = [word.decode() for word in words[min(step - 1, 1) :: step]]
                refused |= dict.fromkeys(named or [correction.member for correction in left], CODES[reason])
    else:
        raise ChangedError(f"board {state.board.id}: the scores changed {attempts} times in a row")
    return [refused[correction.member] for correction in corrections]


def changes_of_union(
    corrections: Sequence[Correction], outcomes: Sequence[Corrected | str], weight: int, *, zeros: bool
) -> list[Correction]:
    """Return the corrections of a union that follow from corrections of one of its parts, which has this `weight`.

    With `zeros`, a new record with a sum of zero is one of them.
    """
    return [
        msgspec.structs.replace(correction, add=(outcome.score - (outcome.before or 0)) * weight, score=None)
        for correction, outcome in zip(corrections, outcomes, strict=True)
        if not isinstance(outcome, str)
        and (outcome.score != (outcome.before or 0) or (zeros and outcome.before is None))
    ]


async def read_held(state: BoardState, members: Sequence[str]) -> dict[str, dict[int, bytes]]:
    """Read what members have in each slot; empty for nothing. Later, `add.lua` checks that nothing has changed."""
    starts = [int(start) for start in await state.call("ZRANGE", state.keys.slots, 0, -1)]
    return await read_fields(state, members, {start: state.keys.slot(start) for start in starts})


async def read_fields(
    state: BoardState, members: Sequence[str], keys: Mapping[int, str]
) -> dict[str, dict[int, bytes]]:
    """Read the field of each member under some store keys, one for each slot; empty for none."""
    rows = await state.client.calls([(key, ("HMGET", key, *members)) for key in keys.values()])
    return {
        member: {start: row[place] or b"" for start, row in zip(keys, rows, strict=True)}
        for place, member in enumerate(members)
    }


class _Attempt(msgspec.Struct):
    """One attempt to apply corrections, made from the amounts that the members had when they were read."""

    state: BoardState
    corrections: Sequence[Correction]
    held: Mapping[str, Mapping[int, bytes]]
    future: int
    is_clock_known: bool = False  # whether the store has refused a plan, and so told its time
    # For each member its score before, as far as slots in the window hold it, and afterwards; or the code of a refusal.
    outcomes: dict[str, Corrected | str] = {}

    def fill(self, board: Board, plan: Plan) -> None:
        """Plan the corrections by the board's clock."""
        open_to_all = msgspec.structs.replace(board, votes=None)  # so that a contest that has ended can be corrected
        newest = self.state.clock.now + self.future if self.is_clock_known else None
        self.outcomes = {
            correction.member: self._plan(open_to_all, plan, correction, newest) for correction in self.corrections
        }
        latest, has_times = plan.batch.latest or 0, board.clock == "event" or plan.batch.latest is not None
        for group in plan.slots.values():
            times = [] if group.events is None else group.events.times
            times = [None if at is None else latest - at for at in times]
            group.events = SlotEvents(times=times) if has_times else None
        self.is_clock_known = True

    def _plan(self, board: Board, plan: Plan, correction: Correction, newest: int | None) -> Corrected | str:
        member, time, window = correction.member, correction.time, board.window
        held = self.held[member]
        start: int | str | None = plan.current
        if time is not None:
            start = assign_slot(plan, board, make_entry(member, 0, time), newest)
        if start is None or isinstance(start, str):
            return start or "time_required"
        oldest = start if window.tables else window.oldest(start if plan.batch.reached is None else plan.batch.reached)
        counted = [
            int(value) for at, value in held.items() if value and (at == start if window.tables else at >= oldest)
        ]
        is_sum = board.operator == "incr"
        zero_is_none = is_sum and not board.zeros
        before = (sum(counted) or (None if zero_is_none else 0)) if counted else None
        score = correction.score if correction.score is not None else (before or 0) + (correction.add or 0)
        # With `zeros`, the slot holds a member also for a correction by zero.
        is_new = board.zeros and correction.add == 0 and not held.get(start)
        if not is_new and score == (before or 0 if zero_is_none else before):
            return Corrected(before, score)
        if board.packing is not None and not board.packing.holds(score):
            return "score_out_of_range"
        amount = score - (before or 0) if is_sum else score
        if board.sums is not None:
            change = (correction.add, 0) if correction.add is not None else (score, -(before or 0))
            if not board.sums.can_add(*change):
                return "score_out_of_range"
        batch, plan.held = plan.batch, {**(plan.held or {}), member: held}
        batch.producers, batch.reason = [CORRECTOR], correction.reason
        group, number = plan.slot(board, start), len(plan.held)
        group.add(batch.rules, member, amount, time, number if is_sum else -number, NO_METADATA)
        group.metadata = []  # the metadata of the member stays
        at = time
        if board.clock == "event":
            at = plan.now if time is None else time
        group.events = group.events or SlotEvents()
        group.events.times.append(at)
        if isinstance(window, Sliding):
            plan.log(at, amount, member)
        return Corrected(before, score)
