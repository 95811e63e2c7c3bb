"""Every example of docs/client.md runs as written, and the page names every error."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from live import client
from tests.client.support import scores
from tests.harness.boards import rolling_board
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

PAGE: Final = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
EXAMPLES: Final = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
PRINTS: Final = [
    "2 counted, 0 rejected", "5000 counted", "accepted 1", "1 post 0 1000", "post 1 is 997 behind post 0",
    "2 members",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("example", "prints"), list(zip(EXAMPLES, PRINTS, strict=True)))
async def test_an_example_runs(valkey_url: str, example: str, prints: str) -> None:
    """The example runs against a real server, in its own process, with warnings as errors."""
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url:
        if "watch" in example or "record(" in example:
            async with client.LiveBoard(url) as live:
                await live.post(client.Event("post 0", 1000), client.Event("post 1", 3))
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", example.replace("http://127.0.0.1:8000", url),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        printed, errors = await running.communicate()
        assert (running.returncode, errors) == (0, b"")
        assert printed.decode().splitlines()[0] == prints
        assert await scores(url)


def test_every_error_is_listed() -> None:
    """The table has every error that a caller can get, and no other. `LiveBoardError` is only their base."""
    errors = {name for name in client.__all__ if name.endswith("Error")} - {"LiveBoardError"}
    assert set(re.findall(r"^\| `(\w+Error)` \|", PAGE, re.MULTILINE)) == errors
