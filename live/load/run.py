"""Run a load test: start its processes, let them connect, send and settle together, and make the report."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import aiohttp

from live.errors import SetupError
from live.load.options import Options
from live.load.report import LoadReport, make_report
from live.load.worker import Connected, Failed, Message, Result, Sent, Settle, Start, Task, encode, receive

_SETTLE: Final = 3.0  # seconds for the last messages to arrive
_LEAD: Final = 0.2  # seconds from the signal to start until the first like is due

Progress = Callable[[float, float], None]
_Expected = TypeVar("_Expected", bound=Message)


async def run(options: Options, progress: Progress) -> LoadReport:
    """Run the test.

    Raises:
        SetupError: the server can't be reached, has no such board, or does not allow the producers to send.
    """
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.get(f"{options.url}/v1/boards/{options.board}?limit=1") as response,
        ):
            if response.status != 200:  # noqa: PLR2004
                raise SetupError(f"{response.url} returned {response.status}: {(await response.text())[:300]}")
    except (aiohttp.ClientError, TimeoutError) as error:
        raise SetupError(f"can't reach {options.url}: {error!r}. Is `live serve` running?") from None
    async with _children(options) as children:
        await _all(child.expect(Connected) for child in children)
        started = time.perf_counter() + _LEAD
        for child in children:
            child.send(Start(started))
        sending = asyncio.create_task(_all(child.expect(Sent) for child in children))
        while not sending.done():
            progress(min(max(0.0, time.perf_counter() - started), options.schedule.seconds), options.schedule.seconds)
            await asyncio.wait({sending}, timeout=0.2)
        last_offset = max(sent.last_offset for sent in await sending)
        for child in children:
            child.send(Settle(last_offset, _SETTLE))
        results = await _all(child.expect(Result) for child in children)
    return make_report(options, results, started, last_offset)


class _Child:
    """One process of the test."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None  # noqa: S101 - both are pipes
        assert process.stdout is not None  # noqa: S101
        self.process = process
        self._input = process.stdin
        self._output = process.stdout

    def send(self, message: Message) -> None:
        """Send a message."""
        self._input.write(encode(message))

    async def expect(self, kind: type[_Expected]) -> _Expected:
        """Receive the next message.

        Raises:
            SetupError: the process can't go on.
        """
        message = await receive(self._output)
        if isinstance(message, kind):
            return message
        if isinstance(message, Failed):
            raise SetupError(message.problem)
        raise SetupError("a process of the load test ended unexpectedly; its error is above")


@asynccontextmanager
async def _children(options: Options) -> AsyncIterator[list[_Child]]:
    """Start the processes of the test, each with its task, and end them afterwards."""
    children: list[_Child] = []
    try:
        processes, totals = options.processes, (options.producers, options.viewers, options.sse_viewers)
        for number in range(processes):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "live.load.worker",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            children.append(_Child(process))
            producers, viewers, sse = (total // processes + (number < total % processes) for total in totals)
            children[-1].send(
                Task(
                    url=options.url, board=options.board, key=options.key, members=options.members,
                    schedule=options.schedule, connections=producers, websocket=viewers,
                    sse=sse, process=number, processes=processes,
                )
            )  # fmt: skip
        yield children
    finally:
        for child in children:
            if child.process.returncode is None:
                child.process.terminate()
        for child in children:
            await child.process.communicate()


async def _all(waiting: Iterable[Coroutine[object, object, _Expected]]) -> list[_Expected]:
    """Wait for all coroutines, and raise the first error at once.

    Raises:
        SetupError: a process can't go on.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            found = [tasks.create_task(each) for each in waiting]
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    return [task.result() for task in found]
