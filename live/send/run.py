"""Send a file from the first unacknowledged event to the last."""

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
from live.errors import SetupError
from live.send.batches import batches
from live.send.progress import SavedProgress, SendOptions

Progress = Callable[[int, int, int], None]


class SendOutcome(msgspec.Struct, kw_only=True):
    """The result of a run.

    `resumed_at` is the number of events that earlier runs sent. `stopped` says that the run was interrupted. `lost` is
    the number of lost responses. After each of them, the batch was sent again, and its events that had been counted are
    part of `duplicate`.
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

    Progress is saved after each response. If a response is lost, this run or the next one sends the batch again. The
    events of the batch have ids, so each counts once. Without ids, the events could count twice, so the run stops
    there.

    Raises:
        SetupError: the file can't be read, or the server refuses it or stays unavailable.
    """
    stop = asyncio.Event()
    # An interrupted run first finishes the current batch, so that no event is in doubt.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    try:
        total = options.path.stat().st_size
        saved = SavedProgress(options)
        outcome = SendOutcome(resumed_at=saved.sent, sent=saved.sent)
        # Each batch has its own connection. On a reused connection, the end of a server looks like a lost response.
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
    except ServerUnavailableError as error:
        once = " Events of the last batch that were counted count once." if error.in_doubt else ""
        raise SetupError(f"{error}; run the command again to continue from here.{once}") from None
    except OutcomeUnknownError as error:
        raise SetupError(f"{error}. The next run sends them again.") from None
    except LiveBoardError as error:
        raise SetupError(str(error)) from None
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
    """Send batch after batch. Return false if the run was interrupted."""
    total, clock = options.path.stat().st_size, asyncio.get_running_loop().time
    started: tuple[float, float] | None = None  # when the run started, and the time of its first event
    for batch in batches(options, saved.run, skip=saved.sent):
        if options.speed is not None and batch.at is not None:  # keep the pace of the events
            began, first = started = started or (clock(), batch.at)
            if await stopped_within(stop, began + (batch.at - first) / options.speed - clock()):
                return False
        try:
            answer = await sender.send(ndjson(batch.events, repeatable=options.ids))
        except SendingStoppedError:
            return False
        codes = Counter(outcome.rejected)
        codes.update(rejection.code for rejection in answer.rejected)
        outcome.rejected = dict(codes)
        for rejection in answer.rejected[: max(0, 3 - len(outcome.examples))]:
            example = msgspec.to_builtins(rejection)
            example["event"] = outcome.sent + example.pop("index")
            outcome.examples.append(example)
        outcome.accepted += answer.accepted
        outcome.duplicate += answer.duplicate
        outcome.sent += len(batch.events)
        saved.acknowledged(outcome.sent)
        progress(batch.read, total, outcome.sent)
        if stop.is_set():
            return False
    return True
