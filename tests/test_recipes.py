"""The recipes and the tutorials as a reader follows them: every command works, and prints what the page says."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from live.settings import Settings
from live.store.connection.client import connect
from tests.harness.network import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).parent.parent
FILES: Final = ROOT / "docs" / "examples" / "recipes"
DEADLINE: Final = 150
SHELL: Final = ["bash", "--norc", "--noprofile"]
MARK: Final = "-- the block has ended --"
MODULES: Final = ROOT / ".tools" / "node_modules"
# Answers in the form that Nakama documents for the lists of its REST API. No Nakama runs in this test.
NAKAMA: Final = {
    "": '{"records":[{"leaderboard_id":"weekly","owner_id":"4c2ae592","username":"ann","score":"77","num_score":3,'
    '"metadata":"{}","rank":"1"}],"next_cursor":"Q0FF"}',
    "Q0FF": '{"records":[{"leaderboard_id":"weekly","owner_id":"8f4d52c7","score":"41","rank":"2"}]}',
}


class Block(NamedTuple):
    """A block of a page: its language, the file that it shows, its text, and the output that the page shows for it."""

    language: str
    file: str
    text: str
    shows: str = ""


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page in order. A block of text or JSON after commands shows what they print."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    found = [
        Block(*each) for each in re.findall(r'^```(\w+)(?: title="(.+?)")?\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    ]
    after = [*found[1:], Block("", "", "")]
    return [
        block._replace(shows=shown.text)
        if block.language == "sh" and shown.language in {"text", "json"} and not shown.file
        else block
        for block, shown in zip(found, after, strict=True)
    ]


def is_shown(expected: str, printed: str) -> bool:
    """Whether a text is what a page shows, apart from white space. A `…` on the page stands for any text."""
    bare = "".join(expected.split())
    return re.fullmatch(".*".join(map(re.escape, bare.split("…"))), "".join(printed.split())) is not None


class Reader:
    """A reader of a page, with a terminal for each server and one terminal for all other commands."""

    def __init__(self, folder: Path, replaced: dict[str, str]) -> None:
        self.folder = folder
        self.port = free_port()
        self.program = free_port()  # the port of a program with a web framework
        self._replaced = {"8000": str(self.port), "8080": str(self.program), **replaced}
        bare = {name: value for name, value in os.environ.items() if not name.startswith("LIVE_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{bare['PATH']}"
        self.environment = {**bare, "PATH": path, "LIVE_PORT": str(self.port), "NAKAMA_TOKEN": "t", "COLUMNS": "200"}
        for file in folder.iterdir():
            file.write_text(self.here(file.read_text(encoding="utf-8")), encoding="utf-8")
        self._shell = self._start(subprocess.PIPE)
        self._servers: list[subprocess.Popen[str]] = []

    def here(self, text: str) -> str:
        """Replace the addresses in the text by those of this test."""
        for before, after in self._replaced.items():
            text = text.replace(before, after)
        return text

    def follow(self, page: str) -> None:
        """Run every command of a page, compare the output and the files that the page shows, and open its links."""
        for block in blocks_of(page):
            if block.file:
                assert (FILES / block.file).read_text(encoding="utf-8") == block.text, block.file
            elif block.language == "sh":
                printed = self._serve(block) if " live serve" in f" {block.text}" else self._run(block)
                assert is_shown(self.here(block.shows), printed), f"{block.text}\nprinted\n{printed}"
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        for link in re.findall(r"<(http://127\.0\.0\.1:8000/.*?)>", text):
            assert httpx.get(self.here(link)).status_code == 200, link

    def end(self) -> None:
        """Close the terminals."""
        for process in (*self._servers, self._shell):
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=DEADLINE)

    def _start(self, stdout: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            SHELL, cwd=self.folder, env=self.environment, text=True, encoding="utf-8",
            stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def _run(self, block: Block) -> str:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"curl() {{ command curl -sS \"$@\"; }}\n{self.here(block.text)}\necho '\n{MARK}'\n")
        self._shell.stdin.flush()
        lines: list[str] = []
        for line in self._shell.stdout:
            if line.strip() == MARK:
                break
            lines.append(line)
        return "".join(lines)

    def _serve(self, block: Block) -> str:
        """Start a server, and wait until it has printed what the page shows."""
        log = self.folder / f"server-{len(self._servers)}.log"
        with log.open("w") as file:
            server = self._start(file.fileno())
        self._servers.append(server)
        assert server.stdin is not None
        server.stdin.write(f"exec env {self.here(block.text)}")
        server.stdin.flush()
        end = time.monotonic() + DEADLINE
        while not is_shown(self.here(block.shows), log.read_text()):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        return log.read_text()


@contextmanager
def reader(folder: Path, **replaced: str) -> Iterator[Reader]:
    """A reader with the files of the recipes in a folder."""
    found = Reader(shutil.copytree(FILES, folder / "recipes"), replaced)
    try:
        yield found
    finally:
        found.end()


@contextmanager
def nakama() -> Iterator[int]:
    """Run a server that answers as Nakama documents, and yield its port."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            cursor = parse_qs(parts.query).get("cursor", [""])[0]
            is_asked = parts.path == "/v2/leaderboard/weekly" and self.headers["Authorization"] == "Bearer t"
            self.send_response(200 if is_asked else 401)
            self.end_headers()
            self.wfile.write(NAKAMA[cursor].encode() if is_asked else b"")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


async def sorted_set(url: str, key: str) -> None:
    """Fill a sorted set."""
    store = connect(url, Settings())
    await store.call(key, "ZADD", key, "7", "x", "8", "y", "9", "z")
    await store.aclose()


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


def test_the_recipes_work(valkey_url: str, tmp_path: Path) -> None:
    """Each board on the page is in `recipes.toml`. Likes count from each web framework that is installed here."""
    boards = (FILES / "recipes.toml").read_text(encoding="utf-8")
    assert [block.text for block in blocks_of("recipes") if block.language == "toml" and block.text not in boards] == []
    key = f"leaderboard-{tmp_path.name}"
    asyncio.run(sorted_set(valkey_url, key))
    programs = {
        "fastapi": [sys.executable, "-m", "uvicorn", "fastapi_app:app", "--port", "8080"],
        "django": [sys.executable, "django_app.py", "runserver", "--noreload", "8080"],
        "express": ["node", "express.mjs"],
        "go": ["go", "run", "main.go"],
    }
    with nakama() as port:
        replaced = {
            "redis://127.0.0.1:6379/0": valkey_url,
            "redis-key leaderboard": f"redis-key {key}",
            "7350": str(port),
        }
        with reader(tmp_path, **replaced) as page:
            page.follow("recipes")
            if MODULES.exists():
                (page.folder / "node_modules").symlink_to(MODULES)
            for name, command in programs.items():
                if is_installed(name):
                    check_framework(name, command, page)


def is_installed(framework: str) -> bool:
    """Whether programs with a web framework can run here."""
    match framework:
        case "express":
            return shutil.which("node") is not None and (MODULES / "express").exists()
        case "go":
            return shutil.which("go") is not None
    return find_spec(framework) is not None


@pytest.mark.parametrize("framework", ["fastapi", "django", "express", "go"])
def test_a_web_framework_is_tried(framework: str) -> None:
    """If a framework is not installed, the test run says which recipe was not tried."""
    if not is_installed(framework):
        pytest.skip(f"{framework} is not installed, so its recipe was not tried")


@pytest.mark.parametrize("page", ["voting-evening", "tutorial-usage"])
def test_a_tutorial_works(tmp_path_factory: pytest.TempPathFactory, page: str) -> None:
    """The test follows the page from its start to its end, in a folder whose path is short enough for a Unix socket."""
    with reader(tmp_path_factory.mktemp("t")) as person:
        person.follow(page)
