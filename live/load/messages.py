"""What the processes of a load test say to each other, over the standard input and output of the children."""

import asyncio
from typing import Final, TypeAlias

import msgspec

from live.load.producers import Counts
from live.load.schedule import Schedule
from live.load.seen import Acknowledged, Seen

_LENGTH: Final = 4  # bytes before each message


class Task(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """To a child: what to do, as process `process` of `processes`."""

    url: str
    board: str
    key: str | None
    members: int
    schedule: Schedule
    connections: int
    websocket: int
    sse: int
    process: int
    processes: int


class Start(msgspec.Struct, frozen=True, tag=True):
    """To a child: when to start, on the clock of `time.perf_counter`, which the processes of a machine share."""

    at: float


class Settle(msgspec.Struct, frozen=True, tag=True):
    """To a child: wait until the viewers have seen this offset, for at most `patience` seconds."""

    offset: int
    patience: float


class Connected(msgspec.Struct, frozen=True, tag=True):
    """From a child: its viewers are connected."""


class Sent(msgspec.Struct, frozen=True, tag=True):
    """From a child: its producers are done."""

    last_offset: int


class Result(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From a child: everything that it measured."""

    counts: Counts
    acknowledged: list[Acknowledged]
    waited: list[float]
    websocket: list[Seen]
    sse: list[Seen]
    frames: int
    bytes: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """From a child: the test can't run, and why."""

    problem: str


Message: TypeAlias = Task | Start | Settle | Connected | Sent | Result | Failed


def encode(message: Message) -> bytes:
    """A message with its length in front."""
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(_LENGTH) + data


async def receive(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None if the other process is gone."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH))
        data = await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        return None
    message: Message = msgspec.msgpack.decode(data, type=Message)
    return message
