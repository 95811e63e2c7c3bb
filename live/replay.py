"""`live replay`: sends a file of events to a running server, in batches, going on where it stopped."""

import asyncio
import csv
import gzip
import hashlib
import io
import os
import signal
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, cast

import aiohttp
import msgspec

from live.errors import SetupError

_BATCH_EVENTS: Final = 1000
_BATCH_BYTES: Final = 512 * 1024
_PATIENCE: Final = 60.0  # seconds for which a server may be away
_TIMEOUT: Final = 60.0
_PAUSE: Final = 1.0
_SAME_TIME: Final = 0.1  # seconds of a replay that keeps a pace in which events share a batch

Progress = Callable[[int, int, int], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to replay where: `speed` is a factor on the events' own time, None for as fast as it goes."""

    path: Path
    url: str
    board: str | None = None
    speed: float | None = None
    restart: bool = False


class Outcome(msgspec.Struct, kw_only=True):
    """What became of the file; `resumed_at` is how many events had been sent before, `stopped` that some are left."""

    sent: int = 0
    accepted: int = 0
    duplicate: int = 0
    rejected: dict[str, int] = {}
    examples: list[dict[str, Any]] = []
    resumed_at: int = 0
    stopped: bool = False


class _Batch(msgspec.Struct):
    events: list[bytes] = []
    size: int = 0
    read: int = 0  # bytes of the file read, for the progress bar
    at: float | None = None  # time of its first event that has one, when the replay keeps a pace

    def due_later(self, at: float | None, speed: float) -> bool:
        """Whether an event of this time is due so much after the batch that it has to wait for the next one."""
        return self.at is not None and at is not None and at - self.at > _SAME_TIME * speed

    def body(self) -> bytes:
        return b"\n".join(self.events)


class _AnswerBody(msgspec.Struct):
    """The part of the server's answer that is used here."""

    accepted: int
    duplicate: int
    rejected: list[dict[str, Any]]


def state_path(options: Options) -> Path:
    """Where it is kept how much of this file, as it now is, has been sent to this server and board."""
    stat = options.path.stat()
    name = f"{options.path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\0{options.url}\0{options.board or ''}"
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "live-board"
    return folder / f"replay-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


async def replay(options: Options, progress: Progress) -> Outcome:
    """Send the file; `progress` is told bytes read, bytes in all and events sent.

    What was sent is noted after each answer. An answer that is lost leaves a batch of which nobody knows whether it
    counted: the replay then ends, and says so.

    Raises:
        SetupError: the file can't be read, the server refuses it, or stays away.
    """
    stop = asyncio.Event()
    # A batch under way is finished first: of one that is cut off nobody would know whether it counted.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    try:
        state = state_path(options)
        total = options.path.stat().st_size
        outcome = Outcome(resumed_at=0 if options.restart else _sent_before(state))
        outcome.sent = outcome.resumed_at
        # A connection for each batch: on one that is kept, a server's stop can't be told from a lost answer.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=_TIMEOUT)) as session:
            started: tuple[float, float] | None = None
            for batch in _batches(options, skip=outcome.resumed_at):
                if options.speed is not None:
                    started = await _keep_pace(batch, options.speed, started)
                _note(outcome, await _send(session, options.url, batch), len(batch.events))
                _remember(state, outcome.sent)
                progress(batch.read, total, outcome.sent)
                if stop.is_set():
                    outcome.stopped = True
                    return outcome
        state.unlink(missing_ok=True)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise SetupError(f"can't read {options.path}: {error}") from None
    progress(total, total, outcome.sent)
    return outcome


def _sent_before(state: Path) -> int:
    try:
        text = state.read_text(encoding="ascii")
    except FileNotFoundError:
        return 0
    if not text.isdecimal():
        raise SetupError(f"{state} does not say how much was sent before; --restart begins with the first event")
    return int(text)


def _remember(state: Path, sent: int) -> None:
    """Note how much was sent: wholly or not at all, whatever happens meanwhile."""
    try:
        state.parent.mkdir(parents=True, exist_ok=True)
        fresh = state.with_suffix(".new")
        fresh.write_text(str(sent), encoding="ascii")
        fresh.replace(state)
    except OSError as error:
        raise SetupError(f"can't note in {state} that {sent} events were sent: {error}") from None


def _note(outcome: Outcome, answer: _AnswerBody, events: int) -> None:
    codes = Counter(outcome.rejected)
    codes.update(rejection["code"] for rejection in answer.rejected)
    for rejection in answer.rejected[: max(0, 3 - len(outcome.examples))]:
        rejection["event"] = outcome.sent + rejection.pop("index")
        outcome.examples.append(rejection)
    outcome.rejected = dict(codes)
    outcome.accepted += answer.accepted
    outcome.duplicate += answer.duplicate
    outcome.sent += events


async def _send(session: aiohttp.ClientSession, url: str, batch: _Batch) -> _AnswerBody:
    """Send one batch; wait for a server that is away, as long as it surely has not counted the batch."""
    give_up = asyncio.get_running_loop().time() + _PATIENCE
    body = gzip.compress(batch.body(), compresslevel=1)
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    while True:
        try:
            async with session.post(f"{url}/v1/events", data=body, headers=headers) as response:
                text = await response.read()
                told = response.headers.get("Retry-After", "")
                pause = float(told) if told.isdecimal() else _PAUSE  # it may be a date, by a proxy
                if response.status == 200:  # noqa: PLR2004
                    return msgspec.json.decode(text, type=_AnswerBody)
                problem = f"{response.status}: {text[:300].decode(errors='replace')}"
                if b'"outcome_unknown"' in text:
                    raise _lost(batch, problem)
                if response.status not in {429, 503}:
                    raise SetupError(f"the server refused a batch with {problem}")
        except aiohttp.ClientConnectorError as error:
            problem, pause = str(error), _PAUSE
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _lost(batch, repr(error)) from None
        if asyncio.get_running_loop().time() + pause > give_up:
            raise SetupError(f"{url} stays away ({problem}); run the command again to go on from here")
        await asyncio.sleep(pause)


def _lost(batch: _Batch, why: str) -> SetupError:
    return SetupError(
        f"the answer to a batch of {len(batch.events)} events was lost ({why}): they may have been counted or not. "
        "Running the command again sends them again."
    )


def _batches(options: Options, skip: int) -> Iterator[_Batch]:
    """The events of the file from number `skip` on, each as a line of JSON."""
    with options.path.open("rb") as raw:
        batch = _Batch(events=[])
        for number, event in enumerate(_events(raw, options.path)):
            if number < skip:
                continue
            line = event if options.board is None else _with_board(event, options.board)
            at = None if options.speed is None else _time_of(line)
            if options.speed is not None and batch.due_later(at, options.speed):
                batch.read = raw.tell()
                yield batch
                batch = _Batch(events=[])
            batch.at = at if batch.at is None else batch.at
            batch.events.append(line)
            batch.size += len(line)
            if len(batch.events) == _BATCH_EVENTS or batch.size >= _BATCH_BYTES:
                batch.read = raw.tell()
                yield batch
                batch = _Batch(events=[])
        if batch.events:
            batch.read = raw.tell()
            yield batch


def _events(raw: IO[bytes], path: Path) -> Iterator[bytes]:
    names = [suffix.lower() for suffix in path.suffixes]
    stream = cast("IO[bytes]", gzip.open(raw)) if names[-1:] == [".gz"] else raw  # noqa: SIM115 - lives as long as `raw`
    if ".csv" not in names[-2:]:
        yield from (line.rstrip(b"\r\n") for line in stream if line.strip())
        return
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    try:
        for row in csv.DictReader(text):
            # Cells beyond the header have no name: for the server to refuse.
            event: dict[str, Any] = {name or "": value for name, value in row.items() if value}
            if "amount" in event:
                event["amount"] = _amount(event["amount"])
            yield msgspec.json.encode(event)
    finally:
        text.detach()  # else it closes the file, whose place is still asked for


def _amount(text: str) -> int | str:
    """A whole number of a CSV file; anything else is left for the server to refuse by name."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else text  # noqa: PLR2004


def _with_board(event: bytes, board: str) -> bytes:
    try:
        fields = msgspec.json.decode(event, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return event  # for the server to refuse by name
    if msgspec.json.encode(fields).count(b'"') != event.count(b'"'):
        return event  # a field stands twice: the same
    fields["board"] = msgspec.Raw(msgspec.json.encode(board))
    return msgspec.json.encode(fields)


async def _keep_pace(batch: _Batch, speed: float, started: tuple[float, float] | None) -> tuple[float, float]:
    """Wait until the first event of the batch is due; gives back when the replay and the events' time began."""
    now = asyncio.get_running_loop().time()
    at = batch.at
    if started is None or at is None:
        return started or (now, at or 0.0)
    await asyncio.sleep(max(0.0, started[0] + (at - started[1]) / speed - now))
    return started


class _Timed(msgspec.Struct):
    time: datetime | None = None


def _time_of(event: bytes) -> float | None:
    try:
        time = msgspec.json.decode(event, type=_Timed).time
    except msgspec.DecodeError:
        return None
    return None if time is None else time.astimezone(UTC).timestamp()
