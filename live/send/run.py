"""Send a file from the first unacknowledged event to the last, in batches."""

import asyncio
import csv
import gzip
import hashlib
import io
import os
import secrets
import signal
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from live.client.errors import LiveBoardError, OutcomeUnknownError, ServerUnavailableError
from live.client.events import with_identity
from live.client.sender import MAX_BYTES, MAX_EVENTS, Sender, SendingStoppedError, ndjson, open_session, stopped_within
from live.client.target import producer_of
from live.domain.csv_table import encoding_of, read_header, shown_header
from live.errors import SetupError
from live.system.files import replacing


class SendOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The input and the target of a run.

    The events are sent `speed` times as fast as they happened. If `speed` is None, they are sent as fast as the server
    counts. `key` is the API key, if the server requires one. With `ids`, each event without an id gets a new id.
    """

    path: Path
    url: str
    board: str | None = None
    speed: float | None = None
    restart: bool = False
    key: str | None = None
    ids: bool = True


class ProgressFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The content of the progress file.

    `run` is a name that is part of the ids of the events, so a later run sends the same ids. The first `sent` events
    were acknowledged. Later events, up to number `reach`, may have been counted without a response. They were sent
    with an API key of `producer`.
    """

    run: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    sent: Annotated[int, msgspec.Meta(ge=0)] = 0
    reach: int = 0
    producer: str = ""


def progress_path(options: SendOptions) -> Path:
    """Return the path of the progress file: each state of an input file has its own for each server and board."""
    stat = options.path.stat()
    name = f"{options.path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\0{options.url}\0{options.board or ''}"
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "live-board"
    return folder / f"send-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


class SavedProgress:
    """The progress of sending a file, saved after each response."""

    def __init__(self, options: SendOptions) -> None:
        self._path = progress_path(options)
        self._ids = options.ids
        self._producer = producer_of(options.key)
        self._saved = ProgressFile(run=secrets.token_hex(8))
        if not options.restart:
            try:
                self._saved = msgspec.json.decode(self._path.read_bytes(), type=ProgressFile)
            except FileNotFoundError:
                pass
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise SetupError(
                    f"{self._path} is damaged, so it is unknown how much was sent; to start at the first event, add "
                    "--restart"
                ) from None
        self._doubted = self._saved.reach if self._ids else 0
        if self._doubted > self.sent and self._saved.producer != self._producer:
            producer = self._saved.producer
            key = f"with an API key of producer {producer!r}" if producer else "without an API key"
            raise SetupError(
                f"the events after the first {self.sent:,} were sent {key} and may have been counted; with the API key "
                f"of another producer they would count twice. Continue {key}, or add --no-ids if that does not matter."
            )

    @property
    def run(self) -> str | None:
        """The name that is part of the ids, or None without ids."""
        return self._saved.run if self._ids else None

    @property
    def sent(self) -> int:
        """Number of acknowledged events."""
        return self._saved.sent

    def begin(self) -> None:
        """Save the name of the run before events with this name are sent."""
        self._saved.producer = self._producer
        self.acknowledged(self.sent)

    def acknowledged(self, sent: int) -> None:
        """Save the number of acknowledged events. Also save that the next batch may count before the next call."""
        self._saved.sent = sent
        self._saved.reach = max(self._doubted, sent + MAX_EVENTS) if self._ids else 0
        self._write()

    def settle(self, *, in_doubt: bool) -> None:
        """At the end of a run, save that no later batch was counted, unless the last batch is in doubt."""
        if in_doubt:
            return
        self._saved.reach = self._doubted
        if self._saved.sent or self._doubted:
            self._write()
        else:
            self.forget()

    def forget(self) -> None:
        """Delete the progress file, because there is no progress to keep."""
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        """Replace the progress file atomically."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._path) as file:
                file.write(msgspec.json.encode(self._saved))
        except OSError as error:
            raise SetupError(f"can't save in {self._path} that {self.sent} events were sent: {error}") from None


_SAME_TIME: Final = 0.1  # in a paced run, events within so many seconds share a batch

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

    Progress is saved after each response. If a response is lost, this run or the next run sends the batch again. The
    events of the batch have ids, so each counts once. Without ids, the events could count twice, so the run stops
    there.
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
        once = " Events of the last batch that have counted do not count again." if error.in_doubt else ""
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


class EventBatch(msgspec.Struct):
    """Events that are sent together."""

    events: list[bytes] = []
    size: int = 0
    read: int = 0  # bytes of the file read, for the progress bar
    at: float | None = None  # in a paced run, the time of the first event that has a time

    def ends_before(self, at: float | None, speed: float | None) -> bool:
        """Return whether an event of the time `at` belongs to the next batch: this one is full, or too early."""
        if speed is not None and self.at is not None and at is not None and at - self.at > _SAME_TIME * speed:
            return True
        return len(self.events) == MAX_EVENTS or self.size >= MAX_BYTES


def batches(options: SendOptions, run: str | None, skip: int) -> Iterator[EventBatch]:
    """Yield the events of the file from number `skip` on. With a `run`, each event has an id."""
    source = None if run is None else f"send:{run}".encode()
    with options.path.open("rb") as raw:
        batch = EventBatch()
        for number, event in enumerate(_events(raw, options.path)):
            if number < skip:
                continue
            line = event if options.board is None else _with_board(event, options.board)
            line = line if source is None else with_id(line, source, number)
            at = None if options.speed is None else _time_of(line)
            if batch.ends_before(at, options.speed):
                batch.read = raw.tell()
                yield batch
                batch = EventBatch()
            batch.at = at if batch.at is None else batch.at
            batch.events.append(line)
            batch.size += len(line)
        if batch.events:
            batch.read = raw.tell()
            yield batch


class _Identity(msgspec.Struct):
    id: msgspec.Raw | UnsetType = UNSET
    source: msgspec.Raw | UnsetType = UNSET


_identity = msgspec.json.Decoder(_Identity)


def with_id(event: bytes, run: bytes, number: int) -> bytes:
    """Add an id, unless the event has one. The new id contains the name of the run and the event's number in the file.

    The id is appended to the text, so the server still sees every mistake in the event.
    """
    try:
        own = _identity.decode(event)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return event  # the server rejects the event, and says why
    if own.id is not UNSET or b'"' not in event:
        return event
    return with_identity(event.rstrip(), run, number, has_source=own.source is not UNSET)


def _events(raw: IO[bytes], path: Path) -> Iterator[bytes]:
    names = [suffix.lower() for suffix in path.suffixes]
    stream = cast("IO[bytes]", gzip.open(raw)) if names[-1:] == [".gz"] else raw  # noqa: SIM115 - lives as long as `raw`
    if ".csv" not in names[-2:]:
        yield from (line.rstrip(b"\r\n") for line in stream if line.strip())
        return
    text = io.TextIOWrapper(stream, encoding=encoding_of(cast("io.BufferedReader", stream).peek(2)), newline="")
    try:
        first = text.readline()
        if not first:
            return
        header = read_header(first)
        if "key" not in header.columns:
            raise csv.Error(f"{shown_header(header)}; it must name the column key, with , ; or a tab between columns")
        for row in csv.DictReader(text, header.columns, delimiter=header.separator):
            # Cells beyond the header have no name. The server rejects such events.
            event: dict[str, Any] = {name or "": value for name, value in row.items() if value}
            digits = event.get("amount", "").removeprefix("-")
            if digits.isascii() and digits.isdecimal() and len(digits) < 20:  # noqa: PLR2004
                event["amount"] = int(event["amount"])  # the server rejects any other amount
            yield msgspec.json.encode(event)
    finally:
        text.detach()  # otherwise the wrapper would close the file, whose position is still needed


def _with_board(event: bytes, board: str) -> bytes:
    try:
        fields = msgspec.json.decode(event, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return event  # the server rejects the event, and says why
    if msgspec.json.encode(fields).count(b'"') != event.count(b'"'):
        return event  # a field is repeated; the server rejects the event and says why
    fields["board"] = msgspec.Raw(msgspec.json.encode(board))
    return msgspec.json.encode(fields)


class _Timed(msgspec.Struct):
    time: datetime | None = None


def _time_of(event: bytes) -> float | None:
    try:
        time = msgspec.json.decode(event, type=_Timed).time
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if time is None else time.astimezone(UTC).timestamp()
