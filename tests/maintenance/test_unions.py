"""A union has the weighted sum of its parts, also after a merge or a rename while events came."""

import asyncio
import json
from collections import Counter
from itertools import count
from pathlib import Path

import httpx
import pytest

from live.domain.board import Boards
from live.domain.board_file import parse_boards
from live.domain.event import make_entry
from live.maintenance.unions import Holdings
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.connection.client import Store
from tests.harness.scripts import connected
from tests.harness.server import serving
from tests.harness.settings import fresh_settings
from tests.web.api.test_trail import command

OLD, NEW = "Jon Smith", "John Smith"
WINDOWS = {
    "forever": '"forever"',
    "rolling": '{ rolling = "2h", slot = "1h" }',
    "sliding": '{ sliding = "1h" }',
    "days": '{ calendar = "day" }',
}
BOARDS = "".join(
    f"""
[[board]]
id = "{name}-a"
types = ["a"]
window = {window}
[[board]]
id = "{name}-b"
types = ["b"]
window = {window}
[[board]]
id = "{name}"
union = ["{name}-a", "{name}-b"]
weights = [1, 10]
window = {window}
"""
    for name, window in WINDOWS.items()
)


async def score(client: httpx.AsyncClient, board: str, member: str) -> int:
    """The score of a member; 0 for none."""
    answer = await client.get(f"/v1/boards/{board}/records/{member}")
    return int(answer.json()["score"]) if answer.is_success else 0


async def send_until(client: httpx.AsyncClient, stopped: asyncio.Event, *members: str) -> None:
    """Send events of the members, one after another."""
    for number in count():
        if stopped.is_set():
            return
        event = {"key": members[number % len(members)], "type": "ab"[number // 2 % 2], "amount": 1 + number % 3}
        assert (await client.post("/v1/events", json=event)).json()["accepted"] == 1


async def merged_under_load(url: str, tmp_path: Path, act: str, *members: str) -> None:
    """Merge two members while events of some members come, and compare the unions with their parts."""
    settings = fresh_settings(url, journal="sqlite", data_dir=tmp_path / "data")
    boards = parse_boards(BOARDS)
    async with connected(url, settings) as store, serving(settings, *boards) as client:
        for member in members:
            for kind in ("a", "b"):
                await client.post("/v1/events", json={"key": member, "type": kind})
        stopped = asyncio.Event()
        sending = [asyncio.create_task(send_until(client, stopped, *members)) for _ in range(6)]
        printed = await command(settings, act, OLD, NEW, "--yes", "--json")
        stopped.set()
        await asyncio.gather(*sending)
        assert {one["board"] for one in json.loads(printed)["boards"]} == {board.id for board in boards}
        for name in WINDOWS:
            for member in (OLD, NEW):
                parts = await score(client, f"{name}-a", member), await score(client, f"{name}-b", member)
                assert await score(client, name, member) == parts[0] + 10 * parts[1], (name, member)
        await command(settings, "check")
        await is_found(store, settings, boards)


async def is_found(store: Store, settings: Settings, boards: Boards) -> None:
    """Let a union count what no part counts, and check that the command finds it."""
    (union,) = (board for board in boards if board.id == "rolling")
    await Ledger(store, union, settings).writer.add([make_entry(NEW, 7)])
    printed = json.loads(await command(settings, "check", "--json", status=1))
    wrong = {board: found["examples"] for board, found in printed["unions"].items() if found["wrong"]}
    assert list(wrong) == ["rolling"]
    (one,) = wrong["rolling"]
    assert (one["key"], one["union"] - one["parts"]) == (NEW, 7)


async def test_unions_have_the_sum_of_their_parts_after_a_merge(valkey_url: str, tmp_path: Path) -> None:
    """Events of both members come in while the boards are merged one after another."""
    await merged_under_load(valkey_url, tmp_path, "merge", OLD, NEW)


async def test_unions_have_the_sum_of_their_parts_after_a_rename(valkey_url: str, tmp_path: Path) -> None:
    """Events for the old name come in, and others, while the boards are renamed one after another."""
    await merged_under_load(valkey_url, tmp_path, "rename", OLD, "Zoe")


@pytest.mark.slow
async def test_unions_on_other_servers_have_the_sum_after_a_merge(cluster_url: str, tmp_path: Path) -> None:
    """A union and its parts are on different servers of a Cluster."""
    await merged_under_load(cluster_url, tmp_path, "merge", OLD, NEW)


@pytest.mark.parametrize(
    ("own", "parts", "is_explained"),
    [
        ({}, {}, True),
        ({0: 5}, {0: 5}, True),
        ({0: 5}, {0: 4}, False),
        ({1: 2, 2: 1}, {1: 3}, True),  # an event counted a slot later on the union
        ({1: 1, 2: 1, 3: 1, 4: 2}, {1: 1, 2: 1, 3: 1, 4: 1}, False),
        ({5: 1}, {4: 1, 5: 1}, True),  # the union has dropped its oldest slot
        *((dict.fromkeys(range(24), 1) | {wrong: 30}, dict.fromkeys(range(24), 1), False) for wrong in range(1, 24)),
    ],
)
def test_an_event_that_counts_in_another_slot_is_no_difference(
    own: dict[int, int], parts: dict[int, int], *, is_explained: bool
) -> None:
    """The sums over all slots from one on decide."""
    assert Holdings(Counter(own), [], Counter(parts)).is_explained == is_explained
