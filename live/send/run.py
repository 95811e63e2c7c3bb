"""Sends a file from the first unacknowledged event to the last."""

import asyncio
import csv
import signal
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from live.client.errors import LiveBoardError, OutcomeUnknownError, ServerUnavailableError
from live.client.sender import Sender, SendingStoppedError, ndjson, open_session, stopped_within
from live.domain.event import Answer
from live.errors import SetupError
from live.send.batches import EventBatch, batches
from live.send.options import SendOptions
from live.send.progress import SavedProgress

Progress = Callable[[int, int, int], None]


class SendOutcome(msgspec.Struct, kw_only=True):
    """The result of a run.

    `resumed_at` is the number of events that earlier runs sent. `stopped` says that the run was interrupted. `lost`
    is the number of lost responses, after each of which a batch was sent again; events that had been counted are part
    of `duplicate`.
    """

    sent: int = 0
    accepted: int = 0
    duplicate: int = 0
    rejected: dict[str, int] = {}
    examples: list[dict[str, Any]] = []
    resumed_at: int = 0
    lost: int = 0
    stopped: bool = False


async def send_file(options: SendOptions, progress: Progress) -> SendOutcome:
    """Send the file. `progress` receives the bytes read, the total bytes and the number of events sent.

    Progress is saved after each response. If a response is lost, this run or the next one sends the batch again. Its
    events have ids, so each counts once. Without ids, they could count twice, so the run stops there.

    Raises:
        SetupError: the file can't be read, or the server refuses it or stays unavailable.
    """
    stop = asyncio.Event()
    # The current batch is finished first, so that an interrupted run leaves nothing in doubt.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    try:
        total = options.path.stat().st_size
        saved = SavedProgress(options)
        outcome = SendOutcome(resumed_at=saved.sent, sent=saved.sent)
        # Each batch has its own connection: on a reused one, a server that stops looks like a lost response.
        async with open_session(options.key, keep_alive=False) as session:
            sender = Sender(session, options.url, options.key, stop=stop)
            try:
                saved.begin()
                outcome.stopped = not await _send_all(options, sender, stop, saved, outcome, progress)
            finally:
                outcome.lost = sender.lost
                saved.settle(in_doubt=sender.in_doubt)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise SetupError(f"can't read {options.path}: {error}") from None
    except LiveBoardError as error:
        raise SetupError(f"{error}{_advice(error)}") from None
    if not outcome.stopped:
        saved.forget()
        progress(total, total, outcome.sent)
    return outcome


async def _send_all(
    options: SendOptions,
    sender: Sender,
    stop: asyncio.Event,
    saved: SavedProgress,
    outcome: SendOutcome,
    progress: Progress,
) -> bool:
    """Send batch after batch. Returns false if the run was interrupted."""
    total = options.path.stat().st_size
    pace = _Pace(options.speed, stop)
    for batch in batches(options, saved.run, skip=saved.sent):
        if not await pace.keep(batch):
            return False
        try:
            answer = await sender.send(ndjson(batch.events, repeatable=options.ids))
        except SendingStoppedError:
            return False
        _note(outcome, answer, len(batch.events))
        saved.acknowledged(outcome.sent)
        progress(batch.read, total, outcome.sent)
        if stop.is_set():
            return False
    return True


class _Pace:
    """Keeps the pace of the events, by a factor; None is as fast as the server counts."""

    def __init__(self, speed: float | None, stop: asyncio.Event) -> None:
        self._speed = speed
        self._stop = stop
        self._started: tuple[float, float] | None = None  # when the run started, and the time of its first event

    async def keep(self, batch: EventBatch) -> bool:
        """Wait until the first event of the batch is due. Returns false if the run was interrupted meanwhile."""
        if self._speed is None or batch.at is None:
            return True
        now = asyncio.get_running_loop().time()
        if self._started is None:
            self._started = (now, batch.at)
        began, first = self._started
        return not await stopped_within(self._stop, began + (batch.at - first) / self._speed - now)


def _note(outcome: SendOutcome, answer: Answer, events: int) -> None:
    codes = Counter(outcome.rejected)
    codes.update(rejection.code for rejection in answer.rejected)
    for rejection in answer.rejected[: max(0, 3 - len(outcome.examples))]:
        example = msgspec.to_builtins(rejection)
        example["event"] = outcome.sent + example.pop("index")
        outcome.examples.append(example)
    outcome.rejected = dict(codes)
    outcome.accepted += answer.accepted
    outcome.duplicate += answer.duplicate
    outcome.sent += events


def _advice(error: LiveBoardError) -> str:
    """Advice for the user of the command."""
    if isinstance(error, ServerUnavailableError):
        once = " Events of the last batch that were counted count once." if error.in_doubt else ""
        return f"; run the command again to continue from here.{once}"
    return ". The next run sends them again." if isinstance(error, OutcomeUnknownError) else ""
