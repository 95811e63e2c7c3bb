"""`live token`, `live tickets`, and the example of the documentation that signs tokens elsewhere."""

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
import segno

from live.auth.tickets import code_of, whole_code_of
from live.auth.tokens import make_tokens
from live.domain.reader import Reader
from live.settings import Settings
from tests.harness.commands import run_command
from tests.harness.tokens import SECRET

PAGE: Final = (Path(__file__).parents[2] / "docs" / "private-boards.md").read_text(encoding="utf-8")


def reader_of(token: str) -> Reader:
    """Return the reader that a token lets in."""
    tokens = make_tokens(Settings(token_secret=SECRET))
    assert tokens is not None
    return tokens._check(token.strip().encode(), time.time())


def opened(token: str) -> tuple[bool, str | None]:
    """Whether a token opens the board `staff`, and who the viewer is."""
    reader = reader_of(token)
    assert "other" not in reader.opens
    return "staff" in reader.opens, reader.member


def test_a_token_is_signed_with_a_link() -> None:
    """Standard output has only the token, and standard error has the link. `--json` prints both as JSON."""
    ended = run_command("token", "--board", "st*,staff", "--for", "5m", LIVE_TOKEN_SECRET=SECRET)
    assert ended.returncode == 0, ended.stderr
    assert opened(ended.stdout) == (True, None)
    assert f"http://127.0.0.1:8000/boards/staff?token={ended.stdout.strip()}" in ended.stderr
    words = ("--board", "staff", "--member", "ann", "--server", "https://x.example/live/", "--json")
    found = json.loads(run_command("token", *words, LIVE_TOKEN_SECRET=SECRET).stdout)
    assert opened(found["token"]) == (True, "ann")
    assert found["link"] == f"https://x.example/live/boards/staff?token={found['token']}"
    ended = run_command("token", "--likes", "cup,staff-*", "--sub", "u-81", LIVE_TOKEN_SECRET=SECRET)
    reader = reader_of(ended.stdout)
    assert (reader.voter, "cup" in reader.likes, "staff-a" in reader.likes) == ("u-81", True, True)
    assert ("staff" in reader.likes, "cup" in reader.opens) == (False, False)
    assert f"/boards/cup?token={ended.stdout.strip()}" in ended.stderr


def test_mistakes_are_named() -> None:
    """After a mistake, the command signs nothing."""
    secret = {"LIVE_TOKEN_SECRET": SECRET}
    for words, environment, advice in (
        (("--board", "staff"), {}, "LIVE_TOKEN_SECRET is not set"),
        (("--board", "Staff"), secret, "--board: 'Staff' is neither a valid board id nor a prefix"),
        (("--board", "staff", "--for", "2d"), secret, "from 1s to 86400s"),
        (("--board", "staff", "--for", "soon"), secret, "--for must be a time"),
        (("--board", "staff", "--member", "a\nb"), secret, "--member can't be a member"),
        (("--likes", "cup"), secret, "--sub names the person who votes"),
        (("--likes", "cup", "--sub", "a\nb"), secret, "contains a control or format character"),
        (("--board", "staff", "--sub", "ann"), secret, "--sub needs the boards"),
        ((), secret, "name at least one board"),
        (("--likes", "Cup", "--sub", "ann"), secret, "--likes: 'Cup' is neither"),
        (("--board", ",".join(f"{'x' * 40}-{number}" for number in range(60))), secret, "the server takes 3,500"),
        (("--board", "staff", "--server", "x"), secret, "is not a URL"),
    ):
        ended = run_command("token", *words, **environment)
        assert (ended.returncode, ended.stdout) == (2, ""), words
        assert advice in ended.stderr


@pytest.mark.slow
def test_the_example_signs_tokens(tmp_path: Path) -> None:
    """The example in Python runs exactly as the documentation has it."""
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    program = tmp_path / "sign.py"
    program.write_text(example, encoding="utf-8")
    environment = {**os.environ, "LIVE_TOKEN_SECRET": SECRET}
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=True)
    assert opened(done.stdout) == (True, "ann")


def test_tickets_are_printed(tmp_path: Path) -> None:
    """Twelve are on a sheet. Each has its number, its eight letters, and a QR code with more letters."""
    page = tmp_path / "tickets.html"
    words = ("songs", "--count", "14", "--sheet", str(page), "--server", "https://x.example/live")
    ended = run_command("tickets", *words, LIVE_TOKEN_SECRET=SECRET)
    assert ended.returncode == 0, ended.stderr
    assert (ended.stdout, "Phones can't open" in ended.stderr) == ("", False)
    assert page.stat().st_mode & 0o777 == 0o600
    html = page.read_text(encoding="utf-8")
    assert [sheet.count("<article>") for sheet in html.split("<section>")[1:]] == [12, 2]
    for number in range(1, 15):
        code = code_of(SECRET, "songs", number)
        ticket = html.split("<article>")[number]
        assert f"songs · {number}<" in ticket
        assert f"{code[:4]}-{code[4:]}" in ticket
        assert "x.example/live/t<" in ticket
        drawn = io.BytesIO()
        segno.make(f"https://x.example/live/t?code={whole_code_of(SECRET, 'songs', number)}", error="m").save(
            drawn, kind="svg", border=2
        )
        ((path,),) = [re.findall(r' d="([^"]+)"', drawn.getvalue().decode())]
        assert f'd="{path}"' in ticket
    found = json.loads(run_command("tickets", *words, "--json", LIVE_TOKEN_SECRET=SECRET).stdout)
    assert found == {"board": "songs", "tickets": 14, "sheet": str(page)}
    assert page.read_text(encoding="utf-8") == html, "the same tickets differ"
    assert "Phones can't open" in run_command("tickets", *words[:5], LIVE_TOKEN_SECRET=SECRET).stderr


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("songs", "--count", "3"), "--count and --sheet belong together"),
        (("songs", "--sheet", "x.html"), "--count and --sheet belong together"),
        (("songs", "--server", "http://x"), "--count and --sheet belong together"),
        (("Songs", "--count", "3", "--sheet", "x.html"), "BOARD: 'Songs' is neither a valid board id nor a prefix"),
        (("song*", "--count", "3", "--sheet", "x.html"), "BOARD: name one board"),
        (("songs", "--count", "5001", "--sheet", "x.html"), "less than or equal to 5000"),
        (("songs", "--count", "3", "--sheet", "none/x.html"), "can't write none/x.html: No such file or directory"),
    ],
)
def test_mistakes_with_tickets_are_named(words: Sequence[str], advice: str) -> None:
    """Nothing is printed."""
    ended = run_command("tickets", *words, LIVE_TOKEN_SECRET=SECRET)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert advice in " ".join(ended.stderr.split())


def test_tickets_need_a_secret() -> None:
    """The advice says which setting."""
    ended = run_command("tickets", "songs", "--count", "3", "--sheet", "x.html")
    assert (ended.returncode, "LIVE_TOKEN_SECRET is not set" in ended.stderr) == (2, True)


def test_the_tickets_of_an_unknown_board_are_not_listed(valkey_url: str) -> None:
    """The command says that the store has no such board."""
    ended = run_command("tickets", "songz", LIVE_STORE=valkey_url, LIVE_KEY_PREFIX="none")
    assert (ended.returncode, "in the store, there is no board `songz`" in ended.stderr) == (1, True)
