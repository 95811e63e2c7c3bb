"""The commands of the documentation as a reader follows them: each works, and prints what the page says."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest

from live.settings import Settings
from live.store.connection.client import connect
from tests.harness.reader import FILES, ROOT, blocks_of, reader

# `tests/test_readme.py` follows these pages, because they begin with a fresh checkout.
WITH_A_CHECKOUT: Final = {"README", "quickstart"}
PAGES: Final = {path.stem: path for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]}
LANGUAGES: Final = {
    "sh", "console", "text", "json", "toml", "python", "js", "jsx", "html", "css", "csv", "go", "http", "ini", "nginx",
    "yaml",
}  # fmt: skip
FOLLOWED: Final = [
    page
    for page, path in PAGES.items()
    if page not in WITH_A_CHECKOUT and any(block.language == "sh" for block in blocks_of(path.read_text()))
]
# Answers in the form that Nakama documents for the lists of its REST API. No Nakama runs in this test.
NAKAMA: Final = {
    "": '{"records":[{"leaderboard_id":"weekly","owner_id":"4c2ae592","username":"ann","score":"77","num_score":3,'
    '"metadata":"{}","rank":"1"}],"next_cursor":"Q0FF"}',
    "Q0FF": '{"records":[{"leaderboard_id":"weekly","owner_id":"8f4d52c7","score":"41","rank":"2"}]}',
}


def text_of(page: str) -> str:
    """The text of a page."""
    return PAGES[page].read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_a_block_is_run_or_says_why_not(page: str) -> None:
    """Blocks of `sh` are run. A line before a block of `console` says why it is not."""
    text = text_of(page)
    assert {block.language for block in blocks_of(text)} <= LANGUAGES
    for block in re.findall(r"^(.*)\n```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        before = block[0].rpartition("\n")[2]
        assert re.fullmatch(r"<!-- not run: .+ -->", before), block[1]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", FOLLOWED)
def test_the_commands_of_a_page_work(page: str, tmp_path_factory: pytest.TempPathFactory, valkey_url: str) -> None:
    """The test follows the page from its start to its end, in a folder whose path is short enough for a Unix socket."""
    folder = tmp_path_factory.mktemp("b")
    with nakama() as port:
        key = f"leaderboard-{folder.name}"
        asyncio.run(sorted_set(valkey_url, key))
        replaced = {
            "redis://127.0.0.1:6379/0": valkey_url,
            "redis-key leaderboard": f"redis-key {key}",
            "7350": str(port),
        }
        with reader(folder, **replaced) as person:
            person.follow(PAGES[page])


def test_the_boards_of_the_recipes_are_in_their_file() -> None:
    """Each board on the page is in `recipes.toml`."""
    boards = (FILES / "recipes.toml").read_text(encoding="utf-8")
    blocks = blocks_of(text_of("recipes"))
    assert [block.text for block in blocks if block.language == "toml" and block.text not in boards] == []


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
