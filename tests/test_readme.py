"""The documentation as a new user follows it: every command works as pasted into a fresh shell."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest

from live.domain.board_file import parse_boards
from tests.harness.network import free_port
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).parent.parent
# The pages are in the order in which a reader follows them.
PAGES: Final = ("README", "docs/quickstart")
BLOCKS: Final = [
    block
    for page in PAGES
    for block in re.findall(r"^```sh\n(.*?)^```$", (ROOT / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE)
]
DEADLINE: Final = 150
STARTED: Final = "Live Board is at http://"
# The shells ignore the user's configuration, and read lines as if pasted. In zsh, a pasted `#` does not begin a
# comment, and a `?` without quotes is a pattern for file names.
SHELLS: Final = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}
WRONG: Final = ("command not found", "no matches found", "No such file", "parse error", "syntax error", '"code":"')


class Step(NamedTuple):
    """A block: how it begins, what it prints, and whether it runs until it is stopped."""

    begins: str
    prints: str
    goes_on: bool = False


ANSWER: Final = '"accepted":1,"duplicate":0,"rejected":[]'
STEPS: Final = [
    Step("make run", STARTED, goes_on=True),  # README
    Step("curl -X POST", ANSWER),
    Step("curl -N", "event: sync", goes_on=True),
    Step("make run", STARTED, goes_on=True),  # quickstart
    Step("curl -X POST", ANSWER),
    Step("curl -X POST", ANSWER),
    Step("curl 'http", '"records":[{"key":"my first post","score":100000'),
    Step("curl -N", "event: sync", goes_on=True),
    Step(".venv/bin/python -m websockets", '"type":"sync"', goes_on=True),
    Step("ADMIN=", '"board":"today"'),
]


@pytest.fixture(scope="module")
def checkout() -> Iterator[Path]:
    """The files that a new user has after `git clone` and the first `make run`, in a folder with a short path."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout  # noqa: S607
    with tempfile.TemporaryDirectory(prefix="live-") as name:
        for path in filter(None, names.decode().split("\0")):
            (Path(name) / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, Path(name) / path)
        done = subprocess.run(  # the part of `make run` before the server starts
            ["make", ".venv/run"],  # noqa: S607
            cwd=name,
            env=environment(0),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        yield Path(name)


def environment(port: int) -> dict[str, str]:
    """The environment of a new user: no active virtual environment, and no setting but the port."""
    left = {name: value for name, value in os.environ.items() if not name.startswith(("LIVE_", "VIRTUAL_ENV"))}
    path = os.pathsep.join(part for part in left["PATH"].split(os.pathsep) if not part.startswith(str(ROOT)))
    return {**left, "PATH": path, "LIVE_PORT": str(port)}


class Terminal:
    """A fresh shell into which one block is pasted."""

    def __init__(self, shell: str, folder: Path, block: str, port: int) -> None:
        self._log = folder / f"terminal-{time.monotonic_ns()}.log"
        text = block.replace("8000", str(port))
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                SHELLS[shell], cwd=folder, env=environment(port), stdin=subprocess.PIPE, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def wait_for(self, text: str) -> None:
        """Wait until a text is printed."""
        end = time.monotonic() + DEADLINE
        while text not in self.log():
            assert time.monotonic() < end, self.log()
            assert self.process.poll() is None, self.log()
            time.sleep(0.05)

    def finish(self) -> None:
        """Leave the shell, and wait for the end of its commands."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(DEADLINE)

    def end(self) -> None:
        """End the running command with SIGTERM, and then the shell, which ignores SIGTERM."""
        assert self.process.stdin is not None
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.stdin.close()
        self.process.wait(DEADLINE)
        end = time.monotonic() + DEADLINE
        while alive(self.process.pid):
            assert time.monotonic() < end
            time.sleep(0.05)

    def log(self) -> str:
        """Everything that was printed."""
        return self._log.read_text(errors="replace")


def alive(group: int) -> bool:
    """Send SIGTERM to a group of processes, and return whether the group still has processes."""
    try:
        os.killpg(group, signal.SIGTERM)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def pasted(shell: str, folder: Path, block: str, port: int) -> Iterator[Terminal]:
    """While in the context, run a block that does not end by itself."""
    terminal = Terminal(shell, folder, block, port)
    try:
        yield terminal
    finally:
        terminal.end()


def has_docker() -> bool:
    """Whether containers can be run."""
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0


def test_every_block_is_tried() -> None:
    """A new block needs a step in `STEPS`. No block has a comment, because zsh takes a pasted comment for words."""
    assert [block for block in BLOCKS if "#" in block] == []
    assert [step.begins for step in STEPS] == [
        block[: len(step.begins)] for block, step in zip(BLOCKS, STEPS, strict=True)
    ]


def needs(shell: str) -> None:
    """Skip if a shell is missing."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


def test_every_command_works(checkout: Path) -> None:
    """The blocks run in fresh shells, beside the server that the first block, `make run`, starts."""
    needs("bash")
    shutil.rmtree(checkout / "live-data", ignore_errors=True)
    port = free_port()
    begun, *steps = zip(STEPS, BLOCKS, strict=True)
    with pasted("bash", checkout, begun[1], port) as server:
        server.wait_for(STARTED)
        server.wait_for("The admin API key of this server")
        for step, block in steps:
            if "make run" not in block:
                follow(step, block, "bash", checkout, port)
        page = httpx.get(f"http://127.0.0.1:{port}/boards/posts").text
        assert "my first post" in page, "the post is not on the page, although the text says so"
        assert httpx.get(f"http://127.0.0.1:{port}/boards/posts,today").status_code == 200


def test_the_first_steps_work_in_zsh_too(checkout: Path) -> None:
    """The first blocks of the README also run in zsh, which parses quotes and comments differently."""
    needs("zsh")
    shutil.rmtree(checkout / "live-data", ignore_errors=True)
    port = free_port()
    with pasted("zsh", checkout, BLOCKS[0], port) as server:
        server.wait_for(STARTED)
        for step, block in zip(STEPS[1:3], BLOCKS[1:3], strict=True):
            follow(step, block, "zsh", checkout, port)


def follow(step: Step, block: str, shell: str, folder: Path, port: int) -> None:
    """Paste a block, and check that it prints the expected text and no error."""
    terminal = Terminal(shell, folder, block, port)
    if step.goes_on:
        terminal.wait_for(step.prints)
        terminal.end()
    else:
        terminal.finish()
    assert step.prints in terminal.log()
    assert [word for word in WRONG if word in terminal.log()] == [], terminal.log()


@pytest.mark.skipif(not has_docker(), reason="there is no Docker engine")
def test_the_composition_accepts_an_event(checkout: Path) -> None:
    """The event has the API key that the block of `docs/install.md` creates."""
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```console\n(KEY=\$\(docker.*?)^```$", text, re.DOTALL | re.MULTILINE)
    try:
        follow(Step("KEY=$(docker", ANSWER), block, "bash", checkout, free_port())
    finally:
        subprocess.run(["docker", "compose", "down", "--volumes"], cwd=checkout, check=True)  # noqa: S607


async def test_the_events_of_the_example_file_count(valkey_url: str) -> None:
    """Each event in a comment of the boards file in `docs/boards.md` counts on its board, on any day."""
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "boards.md").read_text(), re.DOTALL)
    events = re.findall(r"# (\{.*\})$", text, re.MULTILINE)
    ids = [board["id"] for board in tomllib.loads(text)["board"] if board.get("types", ["like"])[0] in str(events)]
    assert ids == ["slowest", "songs", "game"]
    async with (
        run_server(fresh_settings(valkey_url), parse_boards(text)) as url,
        httpx.AsyncClient(base_url=url, headers={"Content-Type": "application/json"}) as client,
    ):
        for board, event in zip(ids, events, strict=True):
            answer: dict[str, Any] = (await client.post("/v1/events", content=event)).json()
            assert (answer["accepted"], answer["rejected"]) == (1, []), event
            assert (await client.get(f"/v1/boards/{board}")).json()["rank_count"] == 1
        assert (await client.get("/boards/moba,rpg,games")).status_code == 200
