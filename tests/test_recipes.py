"""The recipe for Express, with a real program."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.harness.reader import DEADLINE, ROOT, Block, reader

MODULES: Final = ROOT / ".tools" / "node_modules"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None or not (MODULES / "express").exists(), reason="Express is missing")
def test_likes_count_from_express(tmp_path: Path) -> None:
    """A like that is sent to the program counts, and its page has the board."""
    with reader(tmp_path) as page:
        page.run(Block("sh", "", "live serve --boards recipes.toml\n"))
        (page.folder / "node_modules").symlink_to(MODULES)
        program = subprocess.Popen(
            ["node", "express.mjs"],  # noqa: S607
            cwd=page.folder,
            env=page.environment,
            start_new_session=True,
        )
        try:
            end = time.monotonic() + DEADLINE
            while True:
                try:
                    answer = httpx.post(f"http://127.0.0.1:{page.program}/like/express", timeout=DEADLINE)
                    break
                except httpx.ConnectError:
                    assert time.monotonic() < end, "the program did not start"
                    time.sleep(0.1)
            assert answer.status_code == 200, answer.text
            assert f"127.0.0.1:{page.port}/embed/posts" in httpx.get(f"http://127.0.0.1:{page.program}/").text
        finally:
            os.killpg(program.pid, signal.SIGTERM)
            program.wait(DEADLINE)
        records = httpx.get(f"http://127.0.0.1:{page.port}/v1/boards/posts").json()["records"]
        assert {"key": "express", "score": 1, "rank": 1} in [{**record, "rank": 1} for record in records]
