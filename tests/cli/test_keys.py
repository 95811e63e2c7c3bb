"""`live keys` as users see it, on a real store."""

import asyncio
import base64
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import pytest

from live.auth.authenticator import Authenticator
from live.domain.producer import StoredProducer, digest_of
from live.domain.text import ID_FORM
from live.settings import Settings
from live.store.connection.client import connect
from live.store.connection.embedded import EmbeddedStore
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.commands import BARE, run_command
from tests.harness.forked import run_live
from tests.harness.server import ServerProcess, define
from tests.harness.settings import fresh_settings, make_client

pytestmark = pytest.mark.slow


class Commands:
    """`live keys …` with one store and key prefix."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.environment = {
            "COLUMNS": "160", "LIVE_STORE": settings.store, "LIVE_KEY_PREFIX": settings.key_prefix
        }  # fmt: skip

    def run(self, *arguments: str) -> CompletedProcess[str]:
        """Run a command."""
        return run_command("keys", *arguments, **self.environment)

    def output_of(self, *arguments: str) -> str:
        """The output of a command that must succeed."""
        ended = self.run(*arguments)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def json(self, *arguments: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.output_of(*arguments, "--json"))
        return answer

    def refused(self, *arguments: str) -> str:
        """The line with which a command is refused."""
        ended = self.run(*arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "Traceback" not in ended.stderr
        return ended.stderr

    def records(self) -> dict[str, StoredProducer]:
        """The stored records."""

        async def load() -> dict[str, StoredProducer]:
            client = connect(self.settings.store, self.settings)
            try:
                return dict((await ProducerStore(client).load()).records)
            finally:
                await client.aclose()

        return asyncio.run(load())

    def identified(self, key: str) -> str:
        """The producer that an API key identifies."""

        async def identify() -> str:
            client = connect(self.settings.store, self.settings)
            authenticator = Authenticator(client, self.settings)
            try:
                await authenticator.open()
                return authenticator.identify(f"Bearer {key}".encode(), make_client()).id
            finally:
                await client.aclose()

        return asyncio.run(identify())


@pytest.fixture
def commands(valkey_url: str) -> Commands:
    """`live keys …` with a key prefix that no other test uses."""
    return Commands(fresh_settings(valkey_url))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, because the path of a unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="live-") as name:
        yield Path(name)


def test_an_api_key_is_printed_once_and_works(commands: Commands) -> None:
    """Standard output has only the API key, for scripts. Everything else goes to standard error."""
    words = (
        "add",
        "shop",
        "--board",
        "posts",
        "--board",
        "news",
        "--any-board",
        "--verbs",
        "post,admin",
        "--rate",
        "2.5",
    )
    ended = run_live("keys", *words, environment=BARE | commands.environment)
    assert ended.returncode == 0, ended.stderr
    (key,) = ended.stdout.splitlines()
    assert commands.identified(key) == "shop"
    assert key not in ended.stderr
    record = commands.records()["shop"]
    assert (record.boards, record.verbs, record.rate) == (("posts", "news"), ("post", "admin"), 2.5)
    assert record.secrets[0].fingerprint in ended.stderr
    assert commands.json("add", "shop", "--board", "*")["boards"] is None


def test_secrets_and_digests_are_not_listed(commands: Commands) -> None:
    """Neither the text nor the JSON has secrets or digests. Both have the fingerprints of API keys."""
    first = commands.json("add", "shop")
    key = first["key"]
    commands.output_of("add", "other", "--board", "posts", "--any-board", "--rate", "1000")
    commands.output_of("revoke", "other")
    secret = key.partition(".")[2]
    digest = digest_of(secret.encode())
    for printed in (commands.output_of("list"), commands.output_of("list", "--json")):
        for hidden in (secret, digest.hex(), base64.b64encode(digest).decode(), digest.hex()[:16]):
            assert hidden not in printed
        assert first["fingerprint"] in printed
        assert all(name in printed for name in ("shop", "other", "posts"))
    shop, other = reversed(commands.json("list")["producers"])
    assert (shop["id"], shop["revoked"], len(shop["secrets"])) == ("shop", None, 1)
    assert (other["id"], other["secrets"], other["rate"], other["boards"]) == ("other", [], 1000, ["posts"])
    assert other["revoked"] >= other["created"]
    assert (shop["expires"], shop["secrets"][0]["used"]) == (None, None)
    assert commands.json("add", "shop", "--for", "30d")["expires"] > shop["created"]
    assert commands.json("add", "other", "--for", "1h")["expires"] is not None
    assert commands.json("add", "other", "--for", "never")["expires"] is None
    assert "neither a length of time such as 30d nor `never`" in commands.refused("add", "third", "--for", "soon")


def test_a_producer_changes_its_api_key(commands: Commands) -> None:
    """Two secrets may be valid at once, but not three. The first secret is revoked by its fingerprint."""
    old, new = commands.json("add", "shop"), commands.json("add", "shop")
    assert commands.identified(old["key"]) == commands.identified(new["key"]) == "shop"
    assert "has 2 valid secrets" in commands.refused("add", "shop")
    left = commands.json("revoke", "shop", "--secret", old["fingerprint"])
    assert [secret["fingerprint"] for secret in left["secrets"]] == [new["fingerprint"]]
    assert commands.identified(new["key"]) == "shop"
    assert "Revoked. Valid secrets of shop: none" in commands.output_of("revoke", "shop")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["add", "Shop"],
            f"live: the producer's id 'Shop' is not an id: {ID_FORM}",
        ),
        (["add", "shop", "--verbs", "post,fly"], "live: --verbs: unknown verb 'fly'; expected post, read, admin"),
        (
            ["add", "shop", "--board", "Posts"],
            "live: --board: 'Posts' is neither a valid board id nor a prefix such as acme-*",
        ),
        (["add", "shop", "--rate", "-1"], "live: --rate must be a number from 0.001 to 1000000000, or 0 for no limit"),
        (["add", "shop", "--rate", "nan"], "live: --rate must be a number from 0.001 to 1000000000, or 0 for no limit"),
        (["list", "--store", "unix:///nowhere/valkey.sock"], "live: the store is unavailable: "),
    ],
)
def test_errors_are_one_line(commands: Commands, arguments: list[str], line: str) -> None:
    """The exit status is 2, and nothing changes."""
    printed = commands.refused(*arguments)
    assert printed.startswith(line)
    assert len(printed.splitlines()) == 1
    assert commands.records() == {}


def test_an_unknown_board_is_refused(commands: Commands) -> None:
    """The message suggests a similar board, or lists the known boards. `--any-board` permits an unknown board."""
    asyncio.run(define(commands.settings, [rolling_board(board="posts"), rolling_board(board="songs")]))
    assert "there is no board `postss`; did you mean `posts`?" in commands.refused("add", "shop", "--board", "postss")
    printed = commands.refused("add", "shop", "--board", "songs,nope")
    assert "--board: there is no board `nope`; there are: posts, songs. For a board that you create later" in printed
    assert commands.records() == {}
    assert commands.json("add", "shop", "--board", "nope", "--any-board")["boards"] == ["nope"]
    commands.output_of("add", "shop", "--board", "posts,songs")
    commands.output_of("add", "all", "--board", "*")


def test_an_empty_list_says_so(commands: Commands) -> None:
    """The text and the JSON output both say that there are no producers."""
    assert commands.output_of("list") == "No producer has an API key.\n"
    assert commands.json("list") == {"producers": []}


@pytest.mark.parametrize("command", ["add", "list", "revoke"])
def test_help_has_a_description_and_an_example(commands: Commands, command: str) -> None:
    """The help of each command has an example with the name of the command."""
    assert f"Example: live keys {command}" in commands.output_of(command, "--help")


def test_the_embedded_store_is_used_whether_it_runs_or_not(folder: Path) -> None:
    """Commands work before the first start of a server, beside a server, and after its end.

    Of these commands, only `add` creates a data directory.
    """
    data = folder / "data"
    commands = Commands(fresh_settings("", data_dir=data))
    commands.environment["LIVE_DATA_DIR"] = str(data)
    assert f"there is no data directory {data}" in commands.refused("list")
    assert not data.exists()
    commands.output_of("add", "early")
    server = ServerProcess(commands.settings, folder)
    server.start()
    try:
        commands.output_of("add", "late")
        assert [producer["id"] for producer in commands.json("list")["producers"]] == ["early", "late"]
        assert server.stop() == 0
    finally:
        if server.process is not None and server.process.poll() is None:
            server.kill()
    commands.output_of("revoke", "early")
    store = EmbeddedStore(data)
    store.start()
    store.stop()


def test_a_public_server_needs_an_api_key(folder: Path) -> None:
    """Without an API key, the server does not start, and says what to do. With an API key or LIVE_OPEN, it starts."""
    commands = Commands(fresh_settings("", data_dir=folder / "data", host="0.0.0.0"))  # noqa: S104 - a public address
    commands.environment["LIVE_DATA_DIR"] = str(folder / "data")
    server = ServerProcess(commands.settings, folder)
    with pytest.raises(AssertionError) as caught:
        server.start()
    assert "no producer has an API key, and others may reach 0.0.0.0: create one with `live keys add ID`" in str(
        caught.value
    )
    assert "Traceback" not in server.log()
    server.environment["LIVE_OPEN"] = "true"
    started_and_stopped(server)
    server.environment["LIVE_OPEN"] = "false"
    key = commands.json("add", "shop")["key"]
    started_and_stopped(server)
    assert key.partition(".")[2] not in server.log()


def started_and_stopped(server: ServerProcess) -> None:
    """Start a server, check that it answers, and stop it."""
    server.start()
    assert httpx.get(f"{server.url}/healthz").status_code == 200
    assert server.stop() == 0
