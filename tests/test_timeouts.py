"""A test that waits for ever ends, and so does a run whose tests have left processes."""

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from tests.harness.loop import new_uvloop
from tests.harness.topologies import Server
from tests.harness.waiting import DEADLINE


def test_the_end_of_its_time_ends_an_asynchronous_test(capsys: pytest.CaptureFixture[str]) -> None:
    """The output says where the test waits."""

    async def wait_too_long() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGUSR1)
        await asyncio.sleep(DEADLINE)

    before = signal.signal(signal.SIGUSR1, lambda *_: pytest.fail("Timeout"))
    try:
        with asyncio.Runner(loop_factory=new_uvloop) as runner, pytest.raises(RuntimeError, match="stopped before"):
            runner.run(wait_too_long())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "await asyncio.sleep(DEADLINE)" in capsys.readouterr().err


def test_a_process_that_a_test_has_left_does_not_outlive_the_run(tmp_path: Path) -> None:
    """A server that a failed test has left is killed when the process of the tests ends."""
    code = (
        "import os, pathlib, sys; from tests.harness.forked import ForkedProcess; folder = pathlib.Path(sys.argv[1]);"
        "ForkedProcess(['serve', '--port', '0'], dict(os.environ), folder, folder / 'log', folder / 'log')"
    )
    root = Path(__file__).parent.parent
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=root, check=True, timeout=180)


def test_a_question_to_a_server_that_closes_the_connection_ends(tmp_path: Path) -> None:
    """A Sentinel closes all connections of the server that it promotes, also before they have their replies."""
    server = Server("valkey-server", tmp_path / "server")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(server.path))
        listener.listen()

        def close_without_a_reply() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)

        closing = Thread(target=close_without_a_reply)
        closing.start()
        with pytest.raises(ConnectionError, match="without a reply"):
            server.ask("ROLE")
        closing.join()
