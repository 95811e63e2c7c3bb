"""Read a file into batches of events. Each event is a line of JSON. Its id is the same in every run."""

import csv
import gzip
import io
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from live.client.events import with_identity
from live.client.sender import MAX_BYTES, MAX_EVENTS
from live.send.progress import SendOptions

_SAME_TIME: Final = 0.1  # in a paced run, events within so many seconds share a batch


class EventBatch(msgspec.Struct):
    """Events that are sent together."""

    events: list[bytes] = []
    size: int = 0
    read: int = 0  # bytes of the file read, for the progress bar
    at: float | None = None  # in a paced run, the time of the first event that has a time

    def due_later(self, at: float | None, speed: float) -> bool:
        """Return whether an event belongs to the next batch, because its time `at` is too late for this one."""
        return self.at is not None and at is not None and at - self.at > _SAME_TIME * speed

    def add(self, event: bytes, at: float | None) -> bool:
        """Add an event. Return whether the batch is full."""
        self.at = at if self.at is None else self.at
        self.events.append(event)
        self.size += len(event)
        return len(self.events) == MAX_EVENTS or self.size >= MAX_BYTES


def batches(options: SendOptions, run: str | None, skip: int) -> Iterator[EventBatch]:
    """Yield the events of the file from number `skip` on. With a `run`, each event has an id."""
    source = None if run is None else f"replay:{run}".encode()
    with options.path.open("rb") as raw:
        batch = EventBatch(events=[])
        for number, event in enumerate(_events(raw, options.path)):
            if number < skip:
                continue
            line = event if options.board is None else _with_board(event, options.board)
            line = line if source is None else with_id(line, source, number)
            at = None if options.speed is None else _time_of(line)
            if options.speed is not None and batch.due_later(at, options.speed):
                batch.read = raw.tell()
                yield batch
                batch = EventBatch(events=[])
            if batch.add(line, at):
                batch.read = raw.tell()
                yield batch
                batch = EventBatch(events=[])
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
        return event  # the server rejects it, and says why
    if own.id is not UNSET or b'"' not in event:
        return event
    return with_identity(event.rstrip(), run, number, has_source=own.source is not UNSET)


def _events(raw: IO[bytes], path: Path) -> Iterator[bytes]:
    names = [suffix.lower() for suffix in path.suffixes]
    stream = cast("IO[bytes]", gzip.open(raw)) if names[-1:] == [".gz"] else raw  # noqa: SIM115 - lives as long as `raw`
    if ".csv" not in names[-2:]:
        yield from (line.rstrip(b"\r\n") for line in stream if line.strip())
        return
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    try:
        for row in csv.DictReader(text):
            # Cells beyond the header have no name. The server rejects such events.
            event: dict[str, Any] = {name or "": value for name, value in row.items() if value}
            digits = event.get("amount", "").removeprefix("-")
            if digits.isascii() and digits.isdecimal() and len(digits) < 20:  # noqa: PLR2004
                event["amount"] = int(event["amount"])  # the server rejects anything else
            yield msgspec.json.encode(event)
    finally:
        text.detach()  # otherwise the wrapper would close the file, whose position is still needed


def _with_board(event: bytes, board: str) -> bytes:
    try:
        fields = msgspec.json.decode(event, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return event  # the server rejects it, and says why
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
