"""The time of a test ends it."""

import asyncio
import os
import signal
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
