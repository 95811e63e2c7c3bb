"""Rules of a board change while producers post and viewers watch, in several processes, and whatever is killed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from websockets.asyncio.client import connect as watch

import live.web.api.admin
from live.boards.admin import BoardAdmin, Ruling
from live.domain.board_file import parse_boards
from live.journal.database import Database
from live.maintenance.rules import change_rules
from live.settings import Settings
from live.store.board.manage.swap import Beside
from live.store.connection.client import connect
from live.store.registry.definitions import DefinitionStore
from live.system.processes import CHILDREN
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.viewer import ModelViewer

BOARDS = """
[[board]]
id = "runs"
types = ["run"]
operator = "best"
ties = "first"
window = "forever"
"""
RULES: tuple[dict[str, Any], ...] = (
    {"operator": "incr"},
    {"operator": "set", "sort_order": "asc", "ties": "last"},
    {"operator": "incr", "sort_order": "desc", "window": {"rolling": "24h"}, "ranks": "dense"},
    {"operator": "best", "window": {"rolling": None, "calendar": "day"}, "ties": "key", "ranks": "ordinal"},
)


def expected(told: list[tuple[str, int]], operator: str) -> dict[str, int]:
    """The scores of all members, counted plainly."""
    scores: dict[str, int] = {}
    for member, amount in told:
        held = scores.get(member)
        if held is None or operator == "set":
            scores[member] = amount
        else:
            scores[member] = held + amount if operator == "incr" else max(held, amount)
    return scores


class Traffic:
    """A producer that posts to two processes in turn, and what it was told."""

    def __init__(self, clients: list[httpx.AsyncClient]) -> None:
        self.clients = clients
        self.told: list[tuple[str, int]] = []
        self.done = False

    async def produce(self) -> None:
        """Post one event after the other. None is refused."""
        number = 0
        while not self.done:
            number += 1
            member, amount = f"m{number * 7 % 5}", number * 31 % 17 + 1
            event = {"type": "run", "key": member, "amount": amount, "id": str(number)}
            answer = await self.clients[number % 2].post("/v1/events", json=event)
            assert answer.status_code == 200, answer.text
            assert answer.json()["rejected"] == [], answer.text
            self.told.append((member, amount))


@asynccontextmanager
async def two_processes(store: str) -> AsyncIterator[tuple[list[httpx.AsyncClient], list[str]]]:
    """Two processes of one server with a journal."""
    settings = fresh_settings(store, anonymous_admin=True, journal="sqlite", write_deadline=30.0)
    async with (
        run_server(settings, parse_boards(BOARDS)) as one,
        run_server(settings, None) as other,
        httpx.AsyncClient(base_url=one, timeout=180) as first,
        httpx.AsyncClient(base_url=other, timeout=180) as second,
    ):
        yield [first, second], [one, other]


async def scores(client: httpx.AsyncClient) -> dict[str, int]:
    """The scores of all members, as a process shows them."""
    page = (await client.get("/v1/boards/runs")).json()
    return {record["key"]: record["score"] for record in page["records"]}


async def count_again(client: Any, settings: Settings, folder: Path, ruling: Ruling) -> None:
    """Count the events of a board by other rules, in this process."""
    with Database("sqlite", folder, settings.key_prefix, writes=False) as database:
        earlier = [*ruling.earlier, ruling.old]
        await change_rules(
            client, settings, database, ruling.held.epoch, ruling.held.swap, ruling.new, earlier, dry=False
        )


def dying(settings: Settings, operator: str, step: int) -> None:
    """Change the rules of the board, in a process that is killed before or after its call number `step`."""
    calls = 0

    def counted(right: Any) -> Any:
        async def call(*words: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            number = calls
            if number == step:
                os.kill(os.getpid(), signal.SIGKILL)
            reply = await right(*words, **more)
            if -number == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return reply

        return call

    async def work() -> None:
        client = connect(settings.store, settings)
        swap = partial(count_again, client, settings, settings.data_dir)
        with (
            patch.object(Beside, "_run", counted(Beside._run)),
            patch.object(DefinitionStore, "keep", counted(DefinitionStore.keep)),
        ):
            await BoardAdmin(client, settings).rule("runs", {"operator": operator}, "me", None, swap)
        await client.aclose()

    asyncio.run(work())


@pytest.mark.slow
@pytest.mark.fault
async def test_a_change_of_rules_that_is_killed_at_any_step_is_finished_by_the_next(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each kill, a server shows the old rules or the new ones. The same request then finishes the change."""
    settings = fresh_settings(valkey_url, anonymous_admin=True, journal="sqlite", write_deadline=30.0)

    async def here(_: Settings, ruling: Ruling, *, dry: bool) -> None:
        assert not dry
        await count_again(live_client, settings, settings.data_dir, ruling)

    monkeypatch.setattr(live.web.api.admin, "count_again", here)
    async with (
        aclosing(connect(settings.store, settings)) as live_client,
        run_server(settings, parse_boards(BOARDS)) as url,
        httpx.AsyncClient(base_url=url, timeout=180) as client,
    ):
        told, operator = list[tuple[str, int]](), "best"

        async def run(member: str, amount: int) -> None:
            event = {"type": "run", "key": member, "amount": amount}
            assert (await client.post("/v1/events", json=event)).json()["rejected"] == []
            told.append((member, amount))

        for amount in (5, 3, 9):
            await run("ann", amount)
            await run("bob", amount + 1)
        step = 0
        while True:
            step = -step if step > 0 else 1 - step
            new = "incr" if operator == "best" else "best"
            process = CHILDREN.Process(target=dying, args=(settings, new, step))
            process.start()
            await asyncio.to_thread(process.join)
            await run("ann", 4)
            assert await scores(client) in [expected(told, name) for name in (operator, new)], step
            answer = await client.patch("/v1/boards/runs", json={"operator": new})
            assert answer.status_code == 200, answer.text
            assert await scores(client) == expected(told, new), step
            await run("bob", 1)
            assert await scores(client) == expected(told, new), step
            definition = await BoardAdmin(live_client, settings).defined("runs")
            assert definition is not None
            assert (definition.next, definition.choices["operator"] if new == "incr" else "best") == (None, new)
            operator = new
            if process.exitcode == 0:
                break
            assert process.exitcode == -signal.SIGKILL
        assert abs(step) > 8


async def test_a_server_that_stops_during_a_change_of_rules_ends_it(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client hears that the server stops, and the rules stay: any other change of the board is possible."""
    settings = fresh_settings(valkey_url, anonymous_admin=True, journal="sqlite")
    begun = asyncio.Event()

    async def never_ends(*_: object, **__: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(live.web.api.admin, "count_again", never_ends)
    async with httpx.AsyncClient(timeout=180) as client:
        async with run_server(settings, parse_boards(BOARDS), plain=True) as url:
            change = asyncio.create_task(client.patch(f"{url}/v1/boards/runs", json={"operator": "incr"}))
            await begun.wait()
        answer = await change
        assert (answer.status_code, answer.json()["code"]) == (503, "outcome_unknown")
        async with run_server(settings, parse_boards(BOARDS)) as url:
            answer = await client.patch(f"{url}/v1/boards/runs", json={"title": "Runs"})
            assert (answer.status_code, answer.json()["operator"]) == (200, "best")


async def frames(url: str, seen: list[dict[str, Any]]) -> None:
    """Apply the messages of a board. Remember what a viewer shows after each."""
    model = ModelViewer()
    async with watch(f"{url}/v1/boards/runs/live".replace("http", "ws")) as socket:
        async for message in socket:
            model.receive(message)
            seen.append({"epoch": model.epoch, "rows": [(one.member, one.score) for one in model.records]})


async def test_rules_change_under_load_in_two_processes(valkey_url: str) -> None:
    """No event is refused, each process shows the new rules at once, and every frame has the old or the new rules."""
    async with two_processes(valkey_url) as (clients, urls):
        traffic, seen = Traffic(clients), [list[dict[str, Any]](), list[dict[str, Any]]()]
        producing = asyncio.create_task(traffic.produce())
        watching = [asyncio.create_task(frames(url, found)) for url, found in zip(urls, seen, strict=True)]
        operator = "best"
        try:
            for number, rules in enumerate(RULES):
                await asyncio.sleep(0.3)
                answer = await clients[number % 2].patch("/v1/boards/runs", json=rules)
                assert answer.status_code == 200, answer.text
                operator = rules["operator"]
                assert answer.json()["operator"] == operator
            await asyncio.sleep(0.3)
        finally:
            traffic.done = True
            await producing
            for task in watching:
                task.cancel()
        assert len(traffic.told) > 20
        for client in clients:
            assert await scores(client) == expected(traffic.told, operator)
        # What each prefix of the events amounts to by each of the rules, in turn.
        prefixes = {
            name: {tuple(sorted(expected(traffic.told[:size], name).items())) for size in range(len(traffic.told) + 1)}
            for name in ("best", "incr", "set")
        }
        for found in seen:
            editions = list(dict.fromkeys(int(frame["epoch"][8:].removeprefix("e") or 0) for frame in found))
            assert editions == sorted(editions), "a viewer goes back to old rules"
            assert len(editions) > 1
            for frame in found:
                edition = int(frame["epoch"][8:].removeprefix("e") or 0)
                name = RULES[edition - 1]["operator"] if edition else "best"
                assert tuple(sorted(frame["rows"])) in prefixes[name], "a frame has rows of other rules"
