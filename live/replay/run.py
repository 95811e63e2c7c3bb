"""Runs a replay from the first event that was not acknowledged to the last."""

import asyncio
import csv
import signal
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from live.errors import SetupError
from live.replay.batches import Batch, batches
from live.replay.memory import Memory
from live.replay.options import Options
from live.replay.sending import Answer, Sender, open_sender

Progress = Callable[[int, int, int], None]


class Outcome(msgspec.Struct, kw_only=True):
    """What became of the file.

    `resumed_at` is how many events had been sent before, `stopped` that some are left. `lost` is how many answers were
    lost, so that a batch was sent again; where it had counted, its events are among the `duplicate`.
    """

    sent: int = 0
    accepted: int = 0
    duplicate: int = 0
    rejected: dict[str, int] = {}
    examples: list[dict[str, Any]] = []
    resumed_at: int = 0
    lost: int = 0
    stopped: bool = False


async def replay(options: Options, progress: Progress) -> Outcome:
    """Send the file; `progress` is told bytes read, bytes in all and events sent.

    What was sent is noted after each answer. A batch whose answer is lost is sent again, by this run or by the next:
    its events have ids, so they count once. Without ids nobody would know, and the replay ends there.

    Raises:
        SetupError: the file can't be read, the server refuses it, or stays away.
    """
    stop = asyncio.Event()
    # A batch under way is finished first, so that a replay that was stopped leaves nothing in doubt.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    try:
        total = options.path.stat().st_size
        memory = Memory(options)
        outcome = Outcome(resumed_at=memory.sent, sent=memory.sent)
        async with open_sender(options, stop) as sender:
            try:
                memory.begin()
                outcome.stopped = not await _send_all(options, sender, memory, outcome, progress)
            finally:
                outcome.lost = sender.lost
                memory.settle(sender.doubtful)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise SetupError(f"can't read {options.path}: {error}") from None
    if not outcome.stopped:
        memory.forget()
        progress(total, total, outcome.sent)
    return outcome


async def _send_all(options: Options, sender: Sender, memory: Memory, outcome: Outcome, progress: Progress) -> bool:
    """Send batch after batch; gives whether all were sent, rather than that somebody stopped it."""
    total = options.path.stat().st_size
    pace = _Pace(options.speed, sender)
    for batch in batches(options, memory.run, skip=memory.sent):
        if not await pace.keep(batch):
            return False
        answer = await sender.send(batch)
        if answer is None:
            return False
        _note(outcome, answer, len(batch.events))
        memory.acknowledged(outcome.sent)
        progress(batch.read, total, outcome.sent)
        if sender.is_stopped():
            return False
    return True


class _Pace:
    """Keeps the pace of the events, at a factor; None is as fast as it goes."""

    def __init__(self, speed: float | None, sender: Sender) -> None:
        self._speed = speed
        self._sender = sender
        self._started: tuple[float, float] | None = None  # when the replay and the events' time began

    async def keep(self, batch: Batch) -> bool:
        """Wait until the first event of the batch is due; False when somebody stopped the replay meanwhile."""
        if self._speed is None or batch.at is None:
            return True
        now = asyncio.get_running_loop().time()
        if self._started is None:
            self._started = (now, batch.at)
        began, first = self._started
        return not await self._sender.pause(began + (batch.at - first) / self._speed - now)


def _note(outcome: Outcome, answer: Answer, events: int) -> None:
    codes = Counter(outcome.rejected)
    codes.update(rejection["code"] for rejection in answer.rejected)
    for rejection in answer.rejected[: max(0, 3 - len(outcome.examples))]:
        rejection["event"] = outcome.sent + rejection.pop("index")
        outcome.examples.append(rejection)
    outcome.rejected = dict(codes)
    outcome.accepted += answer.accepted
    outcome.duplicate += answer.duplicate
    outcome.sent += events
