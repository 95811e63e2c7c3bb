"""A store that goes back under a running server, and a loss that is accepted: the journal stays readable."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import redis

from live.settings import Settings
from tests.harness.forked import run_live
from tests.harness.server import ServerProcess
from tests.harness.store import Copy, StoreProcess
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.fault]

BOARDS: Final = """
[[board]]
id = "posts"
types = ["like"]
ties = "first"
[[board]]
id = "hot"
types = ["like"]
window = { sliding = "3h" }
[[board]]
id = "replayed"
types = ["old"]
clock = "event"
window = "forever"
[[board]]
id = "quiet"
types = ["none"]
"""


class Served:
    """A server with a journal and its own store, and commands on the same data."""

    def __init__(self, store: StoreProcess, folder: Path) -> None:
        boards = folder / "boards.toml"
        boards.write_text(BOARDS, encoding="utf-8")
        self.folder, self.store = folder, store
        self.settings = Settings(
            port=0, store=store.url, data_dir=folder / "data", boards=boards, journal="sqlite",
            allowed_hosts=("x",),
        )  # fmt: skip
        self.server = ServerProcess(self.settings, folder)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        return run_live(*words, environment=self.server.environment | environment, timeout=120)

    def said(self, *words: str) -> Any:
        """The answer of a command that must succeed, as JSON."""
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def get(self, path: str, **query: str) -> httpx.Response:
        """GET a path."""
        return httpx.get(self.server.url + path, params=query, timeout=180)

    def like(self, member: str, count: int) -> None:
        """Post `count` likes of a member, one request after another.

        Each request also has an event of type `old`, which goes to the board with `clock = "event"`.
        """
        with httpx.Client(base_url=self.server.url, timeout=180) as client:
            for number in range(count):
                old = {"type": "old", "key": member, "time": f"2023-11-14T22:00:{number:02}Z"}
                answer = client.post("/v1/events", json=[{"type": "like", "key": member}, old])
                assert answer.json()["accepted"] == 2, answer.text

    def scores(self, board: str = "posts", **query: str) -> dict[str, int]:
        """The scores of a board."""
        answer = self.get(f"/v1/boards/{board}", **query)
        assert answer.status_code == 200, answer.text
        return {record["key"]: record["score"] for record in answer.json()["records"]}

    async def drained(self) -> None:
        """Wait until no entry of a journal waits in the store, so that SQL has all of them."""

        async def nothing_waits() -> bool:
            with redis.Redis.from_url(self.store.url) as client:
                streams = [name for name in client.scan_iter("live:{*}:journal:*") if client.xlen(name)]
            return not streams

        await eventually(nothing_waits)


@contextmanager
def served(store: StoreProcess, folder: Path) -> Iterator[Served]:
    """A running server, which is stopped at the end."""
    found = Served(store, folder)
    found.server.start()
    try:
        yield found
    finally:
        if found.server.process is not None and found.server.process.poll() is None:
            found.server.kill()


def now() -> str:
    """The present time, as a request names it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


async def go_back(live: Served) -> str:
    """Count events, copy the store, count more events, and put the copy back.

    Returns a time when the board had everything.
    """
    await asyncio.to_thread(live.like, "a", 5)
    await live.drained()
    copy = Copy(live.store, live.folder)
    await asyncio.to_thread(live.like, "b", 7)
    await live.drained()
    before = now()
    copy.restore()
    return before


async def has_no_fault(live: Served) -> bool:
    """Whether the server reports no fault."""
    reasons: list[str] = live.get("/readyz").json()["reasons"]
    return not reasons


async def is_lost(live: Served) -> bool:
    """Whether the drainer has noticed that the store went back."""
    return "the journal of a board has stopped" in live.server.log()


async def test_a_store_that_goes_back_leaves_the_journal_readable(own_store: StoreProcess, tmp_path: Path) -> None:
    """Every command knows that SQL is ahead, and after the loss is accepted, everything can be read again."""
    with served(own_store, tmp_path) as live:
        before = await go_back(live)
        await eventually(lambda: is_lost(live))
        assert live.get("/readyz").status_code == 200, "the server is not ready, although a board lost nothing"
        lost = live.said("journal")["lost"]
        assert any("has board posts" in line and "is at offset 5" in line for line in lost), lost
        refused = live.run("backup", str(tmp_path / "refused"))
        assert (refused.returncode, "lost data" in refused.stderr) == (2, True)
        compared = json.loads(live.run("check", "--json").stdout)
        faults = {report["board"]: report["fault"] for report in compared["boards"]}
        assert "live recover --from journal --board posts" in faults["posts"]
        assert not faults["quiet"], "a board that lost nothing has a fault"
        taught = live.run("check", "--board", "posts", "--repair", "journal")
        assert (taught.returncode, "live recover --from journal --board posts" in taught.stdout) == (1, True)
        live.server.stop()
        live.server.start()
        async with httpx.AsyncClient(base_url=live.server.url, timeout=180) as client:
            lost_one = await client.post("/v1/events", json={"type": "like", "key": "c"})
            assert lost_one.json()["code"] == "epoch_lost"
            assert (await client.post("/v1/events", json={"type": "none", "key": "c"})).json()["accepted"] == 1
        live.server.stop()

        live.server.recover_from_store()
        live.server.start()
        await asyncio.to_thread(live.like, "c", 3)
        await live.drained()
        assert live.scores() == {"a": 5, "c": 3}
        assert live.scores(as_of=before) == {"a": 5, "b": 7}, (
            "a time before the loss was not read from the old timeline"
        )
        assert live.scores(as_of=now()) == {"a": 5, "c": 3}, "a time after the loss was not read from the new timeline"
        assert live.scores("hot", as_of=before) == {"a": 5, "b": 7}
        assert live.scores("hot", as_of=now()) == {"a": 5, "c": 3}
        assert live.scores("replayed", as_of="2023-11-14T22:00:03Z") == {"a": 3}, (
            "the past was not read by the times of the events"
        )
        await eventually(lambda: has_no_fault(live))  # the reports of the previous server expire after 3 s
        boards = {board["board"]: board for board in live.said("journal")["boards"]}
        assert (boards["posts"]["timelines"], boards["quiet"]["timelines"]) == (2, 1), (
            "the lost board has no new timeline, or another board has one"
        )
        assert live.said("journal", "--verify")["sound"]
        assert live.said("check")["clean"]
        exported = live.run("export", "posts")
        assert [line.split(",")[1:3] for line in exported.stdout.splitlines()[1:]] == [["a", "5"], ["c", "3"]]
        live.said("backup", str(tmp_path / "backup"))
        live.server.stop()

        own = {"LIVE_STORE": "", "LIVE_DATA_DIR": str(tmp_path / "restored")}
        restored = live.run("restore", str(tmp_path / "backup"), "--json", **own)
        assert restored.returncode == 0, restored.stderr
        members = {board["board"]: board["members"] for board in json.loads(restored.stdout)["boards"]}
        assert members == {"posts": 2, "hot": 2, "replayed": 2, "quiet": 1}
        with redis.Redis.from_url(own_store.url) as client:
            client.flushall()
        recovered = {board["board"]: board["members"] for board in live.said("recover", "--from", "journal")["boards"]}
        assert recovered == members


async def test_a_lost_board_can_be_recovered_from_its_journal(own_store: StoreProcess, tmp_path: Path) -> None:
    """Instead of accepting the loss, an operator gives the store back what SQL has."""
    with served(own_store, tmp_path) as live:
        await go_back(live)
        await eventually(lambda: is_lost(live))
        repair = live.run("check", "--repair", "store")
        assert (repair.returncode, "live recover --from journal" in repair.stdout) == (1, True)
        running = live.run("recover", "--from", "journal")
        assert (running.returncode, "stop the servers" in running.stderr) == (2, True)
        live.server.stop()
        assert [board["board"] for board in live.said("recover", "--from", "journal")["boards"]] == [
            "posts",
            "hot",
            "replayed",
        ]
        live.server.start()
        assert live.scores() == live.scores("hot") == {"a": 5, "b": 7}
        await asyncio.to_thread(live.like, "c", 1)
        await live.drained()
        assert live.said("check")["clean"]
        assert live.scores(as_of=now()) == {"a": 5, "b": 7, "c": 1}


async def test_an_emptied_store_leaves_the_past(own_store: StoreProcess, tmp_path: Path) -> None:
    """An operator accepts the loss. The loss is recorded, and the past before the loss can still be read."""
    with served(own_store, tmp_path) as live:
        await asyncio.to_thread(live.like, "a", 5)
        await live.drained()
        before = now()
        live.server.stop()
        with redis.Redis.from_url(own_store.url) as client:
            client.flushall()
        live.server.recover_from_store()
        live.server.start()
        await asyncio.to_thread(live.like, "c", 3)
        await live.drained()
        assert live.scores(as_of=before) == {"a": 5}
        assert live.scores(as_of=now()) == {"c": 3}
        boards = {board["board"]: board for board in live.said("journal")["boards"]}
        assert boards["posts"]["timelines"] == 2
        acts = [act for act in live.said("trail")["trail"] if act["what"] == "recovered"]
        assert len(acts) == 1
        assert "emptied" in acts[0]["before"]["lost"]


async def test_a_board_without_events_can_be_read_and_restored(own_store: StoreProcess, tmp_path: Path) -> None:
    """The board's past, export and comparison work at once, and it survives the loss of the store."""
    with served(own_store, tmp_path) as live:
        key = live.said("keys", "add", "ann", "--verbs", "admin")["key"]
        put = partial(httpx.put, headers={"Authorization": f"Bearer {key}"}, json={"types": ["none"]}, timeout=180)

        async def made() -> bool:
            answer = await asyncio.to_thread(put, f"{live.server.url}/v1/boards/made")
            assert answer.status_code in {201, 401}, answer.text
            return answer.status_code == 201

        await eventually(made)  # a running server reads new API keys within two seconds
        await live.drained()
        assert live.scores("made", as_of=now()) == {}

        async def has_definition() -> bool:  # SQL receives definitions within a second
            return (await asyncio.to_thread(live.run, "export", "made")).returncode == 0

        await eventually(has_definition)
        assert live.said("check", "--board", "made")["clean"]
        live.server.kill()
        with redis.Redis.from_url(own_store.url) as client:
            client.flushall()
        assert {board["board"]: board["members"] for board in live.said("recover", "--from", "journal")["boards"]}[
            "made"
        ] == 0
        live.server.start()
        assert live.scores("made") == {}
