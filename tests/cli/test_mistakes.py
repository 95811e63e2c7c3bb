"""A command that can't do what was asked says why, and exits with 1. For a misspelt name, it suggests a known name."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from redis import asyncio as redis

from tests.cli.test_personal import TO_ALL, Machine
from tests.harness.waiting import eventually

pytestmark = pytest.mark.slow

SINCE: Final = ("--since", TO_ALL, "--yes")
OFF: Final = '[[board]]\nid = "off"\ntypes = ["quiet"]\njournal = "off"\n'

# Commands that are started beside a running server, and the messages that they print.
MISTAKES: Final = {
    "void, unknown producer": (("void", "--producer", "shopp", *SINCE), "no producer `shopp`; did you mean `shop`?"),
    "void, unknown board": (("void", "--producer", "ann", "--board", "post", *SINCE), "did you mean `posts`?"),
    "void, unknown actor": (("void", "--actor", "nobody", *SINCE), "no board has anything of this actor"),
    "void, board without a journal": (("void", "--producer", "ann", "--board", "off", *SINCE), "it has no journal"),
    "void, board without actors": (("void", "--actor", "v1", "--board", "posts", *SINCE), "does not tell actors apart"),
    "erase, unknown actor": (("erase", "--actor", "nobody", "--dry-run"), "no board has anything of this actor"),
    "erase, unknown board": (("erase", "--actor", "v1", "--board", "vot", "--dry-run"), "did you mean `vote`?"),
    "export, unknown board": (("export", "post"), "there is no board `post`; did you mean `posts`?"),
    "export, unknown board, events": (("export", "post", "--events"), "did you mean `posts`?"),
    "check, unknown board": (("check", "--board", "post"), "did you mean `posts`?"),
    "revoke, unknown producer": (("keys", "revoke", "shopp"), "did you mean `shop`?"),
}  # fmt: skip


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A server with a like, a vote, and a board without a journal."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    boards = machine.server.environment["LIVE_BOARDS"]
    Path(boards).write_text(Path(boards).read_text(encoding="utf-8") + OFF, encoding="utf-8")
    assert machine.server.stop() == 0
    machine.server.start()
    assert machine.run("keys", "add", "shop").returncode == 0
    machine.post("ann", {"type": "like", "key": "a"}, {"type": "vote", "key": "b", "actor": "v1"})
    machine.post("ann", {"type": "quiet", "key": "c"})
    asyncio.run(eventually(lambda: is_all_in_sql(machine)))
    yield machine
    machine.server.kill()


async def is_all_in_sql(machine: Machine) -> bool:
    """Whether no entry of a journal waits in the store. `erase --dry-run` does not search entries that wait."""
    async with redis.Redis(unix_socket_path=str(machine.data / "valkey.sock")) as client:
        return not [name async for name in client.scan_iter("live:{*}:journal:*") if await client.xlen(name)]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_name_is_no_success(machine: Machine, name: str) -> None:
    """The command does nothing, and says so."""
    words, reason = MISTAKES[name]
    ended = machine.run(*words)
    assert ended.returncode == 1, ended
    assert reason in ended.stderr + ended.stdout


def test_a_dry_run_on_what_exists_succeeds(machine: Machine) -> None:
    """The commands accept a known producer without events, events without an API key, and an actor who voted."""
    for words in (
        ("void", "--producer", "bob", "--board", "posts", *SINCE),
        ("void", "--producer", "", "--board", "posts", *SINCE),
        ("void", "--actor", "v1", "--board", "vote", "--dry-run", *SINCE),
        ("erase", "--actor", "v1", "--dry-run"),
    ):
        ended = machine.run(*words)
        assert ended.returncode == 0, ended


def test_a_replay_with_refused_events_is_no_success(machine: Machine, tmp_path: Path) -> None:
    """The event of a known type counts. The command lists the refusal codes, on a terminal and as JSON."""
    path = tmp_path / "likes.ndjson"
    path.write_text('{"type": "like", "key": "r"}\n{"type": "lke", "key": "r"}\n', encoding="utf-8")
    words = ("send", str(path), "--server", machine.server.url, "--key", machine.keys["ann"])
    ended = machine.run(*words)
    assert (ended.returncode, "1 rejected as type_unknown" in ended.stdout) == (1, True), ended
    again = machine.run(*words, "--restart", "--json")
    assert (again.returncode, json.loads(again.stdout)["rejected"]) == (1, {"type_unknown": 1})
    path.write_text('{"type": "like", "key": "r"}\n', encoding="utf-8")
    assert machine.run(*words).returncode == 0
