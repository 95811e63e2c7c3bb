"""The thread of the blocking client: each call has a result or an error, and an interrupt ends a watch."""

import asyncio
import os
import signal
import sys
import threading
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress

import pytest

from live.client import Event, Rejection, SyncLiveBoard
from live.client.sync import Background
from tests.harness.boards import rolling_board
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings


async def test_a_callback_that_waits_for_its_own_thread_is_an_error(valkey_url: str) -> None:
    """The error says what to do, whether the callback reads, sends or flushes."""

    def refused(url: str, use: str) -> None:
        with SyncLiveBoard(url) as live:

            def on_rejected(event: Event, _rejection: Rejection) -> None:
                {"read": live.boards, "send": lambda: producer.send(event), "flush": producer.flush}[use]()

            with live.producer(on_rejected=on_rejected) as producer:
                producer.send(Event("a", board="unknown"))

    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url, asyncio.timeout(60):
        for use in ("read", "send", "flush"):
            with pytest.raises(RuntimeError, match="call the client from another thread"):
                await asyncio.to_thread(refused, url, use)


def test_work_that_begins_while_the_thread_ends_has_a_result() -> None:
    """No work stays unfinished: each begun future is done, or cancelled."""
    for _ in range(30):
        background = Background()
        background.start()
        begun: list[Future[None]] = []

        def begin(background: Background = background, begun: list[Future[None]] = begun) -> None:
            with suppress(RuntimeError):
                while True:
                    begun.append(background.begin(asyncio.sleep(0)))

        beginning = threading.Thread(target=begin)
        beginning.start()
        while not begun:
            pass
        background.stop()
        beginning.join()
        assert all(future.done() for future in begun)


@pytest.mark.filterwarnings("error")
def test_an_interrupt_ends_a_watch(valkey_url: str) -> None:
    """The caller sees only the interrupt, although the interrupted read still closes its connection."""
    servers, stack = Background(), AsyncExitStack()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a pytest worker ignores SIGINT
    servers.start()
    try:
        url = servers.run(stack.enter_async_context(run_server(fresh_settings(valkey_url), [rolling_board()])))
        with SyncLiveBoard(url) as live:
            tops = live.watch("posts")
            assert next(tops).records == ()
            threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                next(tops)
        with pytest.raises(RuntimeError, match="closed"):
            next(live.watch("posts"))
    finally:
        servers.run(stack.aclose())
        servers.stop()
        signal.signal(signal.SIGINT, before)


FORKING = """
import os, sys
from live.client import Event, SyncLiveBoard

with SyncLiveBoard(sys.argv[1]) as live, live.producer() as producer:
    live.post(Event("a"))
    uses = {
        "post": lambda: live.post(Event("a")), "boards": live.boards, "watch": lambda: next(live.watch("posts")),
        "send": lambda: producer.send(Event("a")), "flush": producer.flush,
        "end": lambda: live.__exit__(None, None, None),
    }
    for name, use in uses.items():
        if os.fork() == 0:
            try:
                use()
            except RuntimeError as error:
                print(name, error, flush=True)
            os._exit(0)
        os.wait()
    live.post(Event("a"))
"""


async def test_a_client_refuses_to_work_after_a_fork(valkey_url: str) -> None:
    """The thread of the client exists only in the process that has entered it. There, the client still works."""
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url, asyncio.timeout(60):
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "ignore", "-c", FORKING, url, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        try:
            printed, _ = await program.communicate()
        finally:
            with suppress(ProcessLookupError):  # a forked process that hangs
                os.killpg(program.pid, signal.SIGKILL)
        lines = printed.decode().splitlines()
        assert [line.split(" ")[0] for line in lines] == ["post", "boards", "watch", "send", "flush", "end"]
        assert all("enter a client in each process" in line for line in lines)
        assert program.returncode == 0
