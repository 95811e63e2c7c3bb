"""One process of a load test: connects viewers, sends its share of the load, and reports what it measured."""

import asyncio
import os
import signal
import sys
from contextlib import suppress

import uvloop

from live.errors import SetupError
from live.load.messages import Connected, Failed, Message, Result, Sent, Settle, Start, Task, encode, receive
from live.load.producers import Producers
from live.load.viewers import ViewerPool


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
        uvloop.run(_run())


async def _run() -> None:
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
    """Send a message. The pipe may be full; the parent always reads."""
    data = memoryview(encode(message))
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


if __name__ == "__main__":
    main()
