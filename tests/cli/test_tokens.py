"""`live tokens sign`, and the recipes of the documentation that sign tokens elsewhere."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from live.auth.tokens import TokenReader, make_tokens
from live.settings import Settings
from tests.harness.commands import run_command
from tests.harness.tokens import SECRET

PAGE: Final = (Path(__file__).parents[2] / "docs" / "private-boards.md").read_text(encoding="utf-8")
NODE: Final = shutil.which("node")
GO: Final = shutil.which("go")


def reader_of(token: str) -> TokenReader:
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
    ended = run_command("tokens", "sign", "--board", "st*,staff", "--for", "5m", LIVE_TOKEN_SECRET=SECRET)
    assert ended.returncode == 0, ended.stderr
    assert opened(ended.stdout) == (True, None)
    assert f"http://127.0.0.1:8000/boards/staff?token={ended.stdout.strip()}" in ended.stderr
    words = ("--board", "staff", "--key", "ann", "--server", "https://x.example/live/", "--json")
    found = json.loads(run_command("tokens", "sign", *words, LIVE_TOKEN_SECRET=SECRET).stdout)
    assert opened(found["token"]) == (True, "ann")
    assert found["link"] == f"https://x.example/live/boards/staff?token={found['token']}"
    ended = run_command("tokens", "sign", "--likes", "cup,staff-*", "--sub", "u-81", LIVE_TOKEN_SECRET=SECRET)
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
        (("--board", "staff", "--key", "a\nb"), secret, "--key can't be a member"),
        (("--likes", "cup"), secret, "--sub names the person who votes"),
        (("--likes", "cup", "--sub", "a\nb"), secret, "contains a control or format character"),
        (("--board", "staff", "--sub", "ann"), secret, "--sub needs the boards"),
        ((), secret, "name at least one board"),
        (("--likes", "Cup", "--sub", "ann"), secret, "--likes: 'Cup' is neither"),
        (("--board", ",".join(f"{'x' * 40}-{number}" for number in range(60))), secret, "the server takes 3,500"),
        (("--board", "staff", "--server", "x"), secret, "is not a URL"),
    ):
        ended = run_command("tokens", "sign", *words, **environment)
        assert (ended.returncode, ended.stdout) == (2, ""), words
        assert advice in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "name", "command"),
    [("python", "sign.py", [sys.executable]), ("js", "sign.mjs", [NODE]), ("go", "sign.go", [GO, "run"])],
)
def test_the_recipes_sign_tokens(tmp_path: Path, language: str, name: str, command: list[str | None]) -> None:
    """Each recipe runs exactly as the documentation has it."""
    if command[0] is None:
        pytest.skip(f"what runs {name} is not installed")
    recipe = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]
    (tmp_path / name).write_text(recipe, encoding="utf-8")
    environment = {"GOCACHE": str(tmp_path / "cache"), **os.environ, "LIVE_TOKEN_SECRET": SECRET}
    words = [*map(str, command), str(tmp_path / name)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert opened(done.stdout) == (True, "ann")
