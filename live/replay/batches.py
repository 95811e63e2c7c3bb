"""From a file to batches of events, each a line of JSON, with an id that stays the same however often it is sent."""

import csv
import gzip
import io
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from live.replay.options import Options

MOST_EVENTS: Final = 1000
_MOST_BYTES: Final = 512 * 1024
_SAME_TIME: Final = 0.1  # seconds of a replay that keeps a pace in which events share a batch


class Batch(msgspec.Struct):
    """Events that are sent together."""

    events: list[bytes] = []
    size: int = 0
    read: int = 0  # bytes of the file read, for the progress bar
    at: float | None = None  # time of its first event that has one, when the replay keeps a pace

    def due_later(self, at: float | None, speed: float) -> bool:
        """Whether an event of this time is due so much after the batch that it has to wait for the next one."""
        return self.at is not None and at is not None and at - self.at > _SAME_TIME * speed

    def add(self, event: bytes, at: float | None) -> bool:
        """Take in one event; gives whether the batch is full."""
        self.at = at if self.at is None else self.at
        self.events.append(event)
        self.size += len(event)
        return len(self.events) == MOST_EVENTS or self.size >= _MOST_BYTES

    def body(self) -> bytes:
        """The batch as it is sent, before it is packed."""
        return b"\n".join(self.events)


def batches(options: Options, run: str | None, skip: int) -> Iterator[Batch]:
    """The events of the file from number `skip` on; with a `run`, each has an id."""
    with options.path.open("rb") as raw:
        batch = Batch(events=[])
        for number, event in enumerate(_events(raw, options.path)):
            if number < skip:
                continue
            line = event if options.board is None else _with_board(event, options.board)
            line = line if run is None else with_id(line, run, number)
            at = None if options.speed is None else _time_of(line)
            if options.speed is not None and batch.due_later(at, options.speed):
                batch.read = raw.tell()
                yield batch
                batch = Batch(events=[])
            if batch.add(line, at):
                batch.read = raw.tell()
                yield batch
                batch = Batch(events=[])
        if batch.events:
            batch.read = raw.tell()
            yield batch


class _Identity(msgspec.Struct):
    id: msgspec.Raw | UnsetType = UNSET
    source: msgspec.Raw | UnsetType = UNSET


_identity = msgspec.json.Decoder(_Identity)


def with_id(event: bytes, run: str, number: int) -> bytes:
    """The event with an id made of the run and its number in the file, unless it has one of its own.

    It is put behind what stands there, so that whatever is wrong with the event is still seen by the server.
    """
    try:
        own = _identity.decode(event)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return event  # for the server to refuse by name
    if own.id is not UNSET or b'"' not in event:
        return event
    if own.source is UNSET:
        identity = f',"source":"replay:{run}","id":"{number}"}}'
    else:  # its source may number events itself
        identity = f',"id":"replay:{run}:{number}"}}'
    return event.rstrip()[:-1] + identity.encode()


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
    except (msgspec.DecodeError, RecursionError):
        return event  # for the server to refuse by name
    if msgspec.json.encode(fields).count(b'"') != event.count(b'"'):
        return event  # a field stands twice: the same
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
