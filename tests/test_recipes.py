"""The recipes for web frameworks, each with a real program."""

import os
import shutil
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.harness.reader import DEADLINE, ROOT, Block, Reader, reader

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MODULES: Final = ROOT / ".tools" / "node_modules"
PROGRAMS: Final = {
    "express": ["node", "express.mjs"],
    "go": ["go", "run", "main.go"],
}


def is_installed(framework: str) -> bool:
    """Whether programs with a web framework can run here."""
    match framework:
        case "express":
            return shutil.which("node") is not None and (MODULES / "express").exists()
        case "go":
            return shutil.which("go") is not None
    return find_spec(framework) is not None


def check_framework(name: str, command: list[str], page: Reader) -> None:
    """Run a program with a web framework. Check that a like sent to it counts, and that its page has the board."""
    words = [page.here(word) for word in command]
    program = subprocess.Popen(words, cwd=page.folder, env=page.environment, start_new_session=True)
    try:
        end = time.monotonic() + DEADLINE
        while True:
            try:
                answer = httpx.post(f"http://127.0.0.1:{page.program}/like/{name}", timeout=DEADLINE)
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
    assert {"key": name, "score": 1, "rank": 1} in [{**record, "rank": 1} for record in records]


def test_likes_count_from_each_framework(tmp_path: Path) -> None:
    """The frameworks that are installed here share a server with the boards of all recipes."""
    with reader(tmp_path) as page:
        page.run(Block("sh", "", "live serve --boards recipes.toml\n"))
        if MODULES.exists():
            (page.folder / "node_modules").symlink_to(MODULES)
        for name, command in PROGRAMS.items():
            if is_installed(name):
                check_framework(name, command, page)


@pytest.mark.parametrize("framework", PROGRAMS)
def test_a_web_framework_is_tried(framework: str) -> None:
    """If a framework is not installed, the test run says which recipe was not tried."""
    if not is_installed(framework):
        pytest.skip(f"{framework} is not installed, so its recipe was not tried")
