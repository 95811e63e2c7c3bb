"""A test that waits for ever ends, and so does a run whose tests have left processes."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from tests.harness.loop import new_uvloop


def test_the_end_of_its_time_ends_an_asynchronous_test(capsys: pytest.CaptureFixture[str]) -> None:
    """The output says where the test waits."""

    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=new_uvloop) as runner:
        runner.get_loop()
        before = signal.signal(signal.SIGUSR1, lambda *_: pytest.fail("Timeout"))
        timer = Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        try:
            with pytest.raises(RuntimeError, match="stopped before"):
                runner.run(wait_for_ever())
        finally:
            timer.cancel()
            signal.signal(signal.SIGUSR1, before)
    assert "await asyncio.Event().wait()" in capsys.readouterr().err


def test_a_process_that_a_test_has_left_does_not_outlive_the_run(tmp_path: Path) -> None:
    """Its servers are killed when the process of the tests ends."""
    code = (
        "import os, pathlib, sys; from tests.harness.forked import ForkedProcess; folder = pathlib.Path(sys.argv[1]);"
        "ForkedProcess(['serve', '--port', '0'], dict(os.environ), folder, folder / 'log', folder / 'log')"
    )
    root = Path(__file__).parent.parent
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=root, check=True, timeout=30)
