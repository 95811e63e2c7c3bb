"""A reader of a page of the documentation, who runs each command and compares what it prints with the page.

A fenced block of `sh` is run. A block of `text` or `json` after it shows what it prints. The comment
`<!-- before: COMMANDS -->` has what the page supposes, one command a line.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from tests.harness.network import free_port

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "docs" / "examples"
FILES: Final = EXAMPLES / "recipes"
DEADLINE: Final = 150
# Blocks with these commands run in a terminal of their own until the page ends.
GOES_ON: Final = re.compile(r"\blive serve\b(?! --check)|\bcurl -N\b|-m websockets")
STARTED: Final = "Live Board is at http://"
_NEW_KEY: Final = "The admin API key of this server is in "
_SHELL: Final = ["bash", "--norc", "--noprofile"]
_MARK: Final = "-- the block has ended --"
_FAILED: Final = "-- a command has failed:"
_WRONG: Final = re.compile(rf'{_FAILED}|"code":"')
_BLOCK: Final = re.compile(r'^```(\w*)(?: title="(.+?)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_BEFORE: Final = re.compile(r"^<!-- before:\s+(.*?)\s+-->$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A block of a page: its language, the file that it shows, its text, and the output that the page shows for it."""

    language: str
    file: str
    text: str
    shows: str = ""


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page in order, each with the output that the page shows after it."""
    found = [Block(*each) for each in _BLOCK.findall(text)]
    return [
        block._replace(shows=shown.text)
        if block.language == "sh" and shown.language in {"text", "json"} and not shown.file
        else block
        for block, shown in pairwise([*found, Block("", "", "")])
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
        self.environment["EXAMPLES"] = str(EXAMPLES)
        for file in folder.iterdir():
            file.write_text(self.here(file.read_text(encoding="utf-8")), encoding="utf-8")
        self._shell = self._start(subprocess.PIPE)
        self._others: list[subprocess.Popen[str]] = []

    def here(self, text: str) -> str:
        """Replace the addresses in the text by those of this test."""
        for before, after in self._replaced.items():
            text = text.replace(before, after)
        return text

    def follow(self, path: Path) -> None:
        """Run every command of a page, compare the output and the files that the page shows, and open its links."""
        text = path.read_text(encoding="utf-8")
        for commands in _BEFORE.findall(text):
            for line in commands.splitlines():
                self.run(Block("sh", "", f"{line}\n"))
        for block in blocks_of(text):
            if block.file:
                assert (FILES / block.file).read_text(encoding="utf-8") == block.text, block.file
            elif block.language == "sh":
                self.run(block)
        for link in re.findall(r"<(http://127\.0\.0\.1:8000/.*?)>", text):
            assert httpx.get(self.here(link)).status_code == 200, link

    def end(self) -> None:
        """Close the terminals."""
        for process in (*self._others, self._shell):
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=DEADLINE)

    def run(self, block: Block) -> None:
        """Run a block, and compare what it prints with what the page shows."""
        if GOES_ON.search(block.text):
            self._run_on(block)
            return
        printed = self._run_once(block)
        # A page may show a command that fails or a request that is refused, with what it prints.
        is_right = is_shown(self.here(block.shows), printed) if block.shows else not _WRONG.search(printed)
        assert is_right, f"{block.text}\nprinted\n{printed}"

    def _start(self, stdout: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            _SHELL, cwd=self.folder, env=self.environment, text=True, encoding="utf-8",
            stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def _run_once(self, block: Block) -> str:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        failed = "" if block.shows else f"trap 'echo {_FAILED} $BASH_COMMAND' ERR\n"
        self._shell.stdin.write(
            f"trap - ERR\n{failed}curl() {{ command curl -sS \"$@\"; }}\n{self.here(block.text)}\necho '\n{_MARK}'\n"
        )
        self._shell.stdin.flush()
        lines: list[str] = []
        for line in self._shell.stdout:
            if line.strip() == _MARK:
                break
            lines.append(line)
        return "".join(lines)

    def _run_on(self, block: Block) -> None:
        """Start a program that does not end, and wait until it has printed what the page shows."""
        log = self.folder / f"terminal-{len(self._others)}.log"
        with log.open("w") as file:
            process = self._start(file.fileno())
        self._others.append(process)
        assert process.stdin is not None
        process.stdin.write(f"exec env {self.here(block.text)}")
        process.stdin.flush()
        end = time.monotonic() + DEADLINE
        started = _NEW_KEY if "--admin-key" in block.text else STARTED
        while not (is_shown(self.here(block.shows), log.read_text()) if block.shows else started in log.read_text()):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)


@contextmanager
def reader(folder: Path, **replaced: str) -> Iterator[Reader]:
    """A reader with the files of the recipes in a folder."""
    found = Reader(shutil.copytree(FILES, folder / "files"), replaced)
    try:
        yield found
    finally:
        found.end()
