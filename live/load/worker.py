"""Run one process of a load test: connect viewers, send its share of the load, and report what it measured.

The processes talk over the standard input and output of the children.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec
import uvloop

from live.errors import SetupError
from live.load.latencies import Acknowledged, Seen
from live.load.options import Schedule
from live.load.producers import Counts, Producers
from live.load.viewers import ViewerPool

_LENGTH: Final = 4  # bytes before each message


class Task(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """To a child: its task, as process number `process` of `processes`."""

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
    """From a child: all of its measurements."""

    counts: Counts
    acknowledged: list[Acknowledged]
    waited: list[float]
    websocket: list[Seen]
    sse: list[Seen]
    frames: int
    bytes: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """From a child: why the test can't run."""

    problem: str


Message: TypeAlias = Task | Start | Settle | Connected | Sent | Result | Failed


def encode(message: Message) -> bytes:
    """Encode a message with its length in front."""
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(_LENGTH) + data


async def receive(reader: asyncio.StreamReader) -> Message | None:
    """Receive the next message. Return None if the other process is gone."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH))
        data = await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        return None
    message: Message = msgspec.msgpack.decode(data, type=Message)
    return message


async def work(task: Task, reader: asyncio.StreamReader) -> None:
    """Do a task, step by step as the parent says.

    Raises:
        SetupError: the server refuses a viewer or the producers.
    """
    viewers = ViewerPool(task.url, task.board)
    producers = Producers(task.url, task.board, task.members, task.key, seed=task.process)
    try:
        await viewers.connect(task.websocket, task.sse)
        _send(Connected())
        if not isinstance(start := await receive(reader), Start):
            return
        await producers.run(task.connections, task.schedule, start.at, process=task.process, processes=task.processes)
        _send(Sent(producers.last_offset))
        if isinstance(settle := await receive(reader), Settle):
            await viewers.await_offset(settle.offset, settle.patience)
    finally:
        await viewers.close()
    _send(
        Result(
            counts=producers.counts, acknowledged=producers.acknowledged, waited=producers.waited,
            websocket=viewers.websocket, sse=viewers.sse, frames=viewers.frames, bytes=viewers.bytes,
        )
    )  # fmt: skip


def main() -> None:
    """Run as a child of `live load`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process
    with suppress(BrokenPipeError):  # the parent is gone
        uvloop.run(run())


async def run() -> None:
    """Receive a task from standard input, and do it."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    task = await receive(reader)
    if not isinstance(task, Task):
        return
    try:
        await work(task, reader)
    except SetupError as error:
        _send(Failed(str(error)))


def _send(message: Message) -> None:
    """Send a message. If the pipe is full, this waits until the parent reads."""
    data = memoryview(encode(message))
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


if __name__ == "__main__":
    main()
