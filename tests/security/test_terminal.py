"""No text of a user reaches the operator's terminal with control characters that the terminal would obey."""

import asyncio
import json
import os
import pty
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Final

import pytest

import live.boards.checks
from live.boards.admin import BoardAdmin
from live.logs import _plain_traceback
from live.settings import Settings
from live.store.connection.client import connect
from tests.harness.boards import rolling_board
from tests.harness.mutation import replaced
from tests.harness.server import define, server
from tests.harness.settings import as_environment, fresh_settings

pytestmark = pytest.mark.security

CLEAR: Final = "\x1b[2J"  # this sequence clears a terminal
HOSTILE: Final = f"a{CLEAR}\x9b31m\u202eb\x07\nforged"


def assert_obeys_nothing(printed: str) -> None:
    """Check that a terminal shows a hostile text, and obeys none of it. Lines and styles of the command may stay."""
    assert not {"\x9b", "\u202e", "\x07"} & set(printed), ascii(printed)
    assert CLEAR not in printed
    assert "\nforged" not in printed
    assert "\\u001b[2J" in printed or "\\x1b[2J" in printed  # the escape of JSON, or the escape of Python


def on_a_terminal(*words: str, settings: Settings, folder: Path) -> str:
    """Return what a command prints on a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, **as_environment(settings), "COLUMNS": "300"}
    process = subprocess.Popen(
        [sys.executable, "-m", "live", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=folder
    )
    os.close(theirs)
    printed = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the last process has closed the terminal
            break
        if not piece:
            break
        printed += piece
    os.close(ours)
    process.wait()
    return printed.decode()


async def make_hostile_board(settings: Settings) -> None:
    """Make a board without a check of its title."""
    client = connect(settings.store, settings)
    with replaced(live.boards.checks, "text_mistakes", lambda *_: []):
        await BoardAdmin(client, settings).put("old", {"title": HOSTILE}, "ann")
    await client.aclose()


def test_a_hostile_title_is_shown_with_escapes(valkey_url: str, tmp_path: Path) -> None:
    """The JSON output has escapes too, and keeps its meaning."""
    settings = fresh_settings(valkey_url, data_dir=tmp_path / "data")
    asyncio.run(make_hostile_board(settings))
    assert_obeys_nothing(on_a_terminal("boards", settings=settings, folder=tmp_path))
    printed = on_a_terminal("boards", "--json", settings=settings, folder=tmp_path)
    assert_obeys_nothing(printed)
    assert HOSTILE in [board["title"] for board in json.loads(printed)["boards"]]


def test_an_error_that_quotes_its_input_is_shown_with_escapes(valkey_url: str, tmp_path: Path) -> None:
    """The error may quote a name that somebody else chose, because scripts pass on such names."""
    settings = fresh_settings(valkey_url, data_dir=tmp_path / "data")
    asyncio.run(define(settings, [rolling_board()]))
    name = HOSTILE.replace("\n", "")  # without line breaks, because a message may have several lines
    for words in (("check", "--board", name), ("send", f"/none/{name}", "--server", "http://[::1]")):
        assert_obeys_nothing(on_a_terminal(*words, settings=settings, folder=tmp_path))


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_an_export_to_a_terminal_is_shown_with_escapes(form: str) -> None:
    """A file gets the text without escapes."""
    script = (
        "from live.cli.export import FORMATS, output_file\n"
        "from live.maintenance.export import Column\n"
        f"with output_file('-') as file, FORMATS[{form!r}](file, [Column('key', 'text')]) as write:\n"
        f"    write([({HOSTILE.replace(chr(10), '')!r},)])\n"
    )
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", script], stdout=theirs, check=True)
    os.close(theirs)
    printed = os.read(ours, 65536).decode()
    os.close(ours)
    assert_obeys_nothing(printed)
    piped = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True).stdout.decode()
    assert "\u202e" in piped


async def test_hostile_titles_are_refused(valkey_url: str) -> None:
    """Titles of boards, event types, categories, members and metadata are tried, on routes that take them."""
    async with server(valkey_url, rolling_board(), anonymous_admin=True) as client:
        contest = {"types": ["vote"], "window": "forever", "votes": {"registered": True}}
        assert (await client.put("/v1/boards/contest", json=contest)).status_code == 201
        attempts: list[tuple[str, str, object]] = [
            ("PUT", "/v1/boards/mine", {"title": HOSTILE}),
            ("PUT", "/v1/boards/mine", {"types": [HOSTILE]}),
            ("PUT", "/v1/boards/mine", {"category": [HOSTILE]}),
            ("PATCH", "/v1/boards/contest", {"title": HOSTILE}),
            ("PUT", "/v1/boards/contest/records/Ada", {"name": HOSTILE}),
            ("PUT", "/v1/items/Ada", {"title": HOSTILE}),
        ]
        for method, path, body in attempts:
            response = await client.request(method, path, json=body)
            assert response.status_code == 422, (path, response.text)
            assert_obeys_nothing(response.text + "\\u001b[2J")
        answer = (await client.post("/v1/events", json={"key": "a", "metadata": {"name": HOSTILE}})).json()
        assert [refusal["code"] for refusal in answer["rejected"]] == ["metadata_invalid"]


def test_a_traceback_on_a_terminal_is_shown_with_escapes() -> None:
    """An exception may quote what a user sent."""
    file = StringIO()
    try:
        raise ValueError(HOSTILE.replace("\n", ""))  # noqa: TRY301
    except ValueError as error:
        _plain_traceback(file, (type(error), error, error.__traceback__))
    assert_obeys_nothing(file.getvalue())
    assert file.getvalue().count("\n") > 2
