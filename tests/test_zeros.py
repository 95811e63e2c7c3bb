"""A board with `zeros`: a member has a record while an event of it is in the window, also if its sum is zero."""

import csv
import io
from typing import Any

import httpx
import pytest

from live.boards.definitions import DefinitionError, read_board
from live.domain.board import Board
from live.domain.event import make_entry
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from tests.harness.board_machine import BoardMachine
from tests.harness.checked import checked
from tests.harness.machines import run_machine, run_mutant
from tests.harness.mutation import Mutant, must_be_caught
from tests.harness.producer import post
from tests.harness.server import server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

GOLF = read_board("golf", {"window": "forever", "sort_order": "asc", "zeros": True, "types": ["hole"]})
WINDOWS = ("rolling", "sliding", "last", "forever", "hours", "days")
HOUR = 3_600_000


def rows_of(page: dict[str, Any]) -> list[tuple[int, str, int]]:
    """The rank, member and score of each record."""
    return [(record["rank"], record["key"], record["score"]) for record in page["records"]]


async def test_a_golfer_at_par_has_a_place(valkey_url: str) -> None:
    """Viewers receive an update with the new score, and no removal."""
    async with server(valkey_url, GOLF) as client:
        await post(client, {"type": "hole", "key": "ann", "amount": -1})
        before = (await client.get("/v1/boards/golf")).json()
        holes = {"ann": [1], "bob": [-2], "cy": [3, 0], "dee": [0]}
        await post(
            client, *({"type": "hole", "key": member, "amount": one} for member, all_ in holes.items() for one in all_)
        )
        page = (await client.get("/v1/boards/golf")).json()
        assert rows_of(before) == [(1, "ann", -1)]
        assert rows_of(page) == [(1, "bob", -2), (2, "ann", 0), (3, "dee", 0), (4, "cy", 3)]
        assert page["rank_count"] == 4
        assert (await client.get("/v1/boards/golf/records/ann")).json()["score"] == 0


async def test_without_zeros_a_sum_of_zero_is_no_score(valkey_url: str) -> None:
    """This is the default."""
    async with server(valkey_url) as client:
        await post(client, {"key": "a", "amount": 1}, {"key": "a", "amount": -1}, {"key": "b", "amount": 0})
        assert rows_of((await client.get("/v1/boards/posts")).json()) == []


@pytest.mark.parametrize("operator", ["set", "best"])
def test_zeros_are_for_sums(operator: str) -> None:
    """An amount of zero is a score anyway on other boards."""
    with pytest.raises(DefinitionError, match="an amount of zero is a score there anyway"):
        read_board("a", {"window": "forever", "operator": operator, "zeros": True})


async def test_a_board_keeps_its_rule_for_zeros(valkey_url: str) -> None:
    """The stored members depend on it."""
    async with server(valkey_url, anonymous_admin=True) as client:
        assert (await client.put("/v1/boards/made", json={"types": ["x"], "zeros": True})).status_code == 201
        assert (await client.get("/v1/boards/made/definition")).json()["zeros"] is True
        answer = await client.patch("/v1/boards/made", json={"zeros": None})
        assert (answer.status_code, answer.json()["code"]) == (409, "board_fixed")


async def test_a_union_shows_the_zeros_of_its_parts(valkey_url: str) -> None:
    """A correction to zero reaches the union too."""
    parts = [read_board(name, {"types": [name], "zeros": True, "window": "forever"}) for name in ("a", "b")]
    union = read_board("all", {"union": ["a", "b"], "zeros": True, "window": "forever"})
    async with server(valkey_url, *parts, union, anonymous_admin=True) as client:
        await post(client, {"type": "a", "key": "x", "amount": 2}, {"type": "b", "key": "x", "amount": -2})
        await post(client, {"type": "b", "key": "y", "amount": 0})
        for path, change in (("a/records/x", {"add": 1}), ("a/records/z", {"score": 0})):
            answer = await client.patch(f"/v1/boards/{path}", json={**change, "reason": "counted wrong"})
            assert answer.is_success, answer.text
        found = rows_of((await client.get("/v1/boards/all")).json())
        assert sorted(row[1:] for row in found) == [("x", 1), ("y", 0), ("z", 0)]


async def contest(client: httpx.AsyncClient) -> None:
    """A contest in which one of four contestants has votes, one has taken-back votes, and one is hidden."""
    for member in ("Ada", "Bob", "Cy", "Dee"):
        await client.put(f"/v1/boards/songs/records/{member}", json={})
    for member, amount in (("Bob", 1), ("Cy", 1), ("Cy", -1)):
        await post(client, {"type": "vote", "key": member, "actor": "x", "amount": amount})
    await client.patch("/v1/boards/songs/records/Dee", json={"hidden": True})


@pytest.mark.parametrize("zeros", [False, True])
async def test_a_table_has_contestants_without_votes(valkey_url: str, *, zeros: bool) -> None:
    """They come last, without a rank. Hidden contestants are left out."""
    board = read_board("songs", {"types": ["vote"], "window": "forever", "votes": {"registered": True}, "zeros": zeros})
    async with server(valkey_url, board, anonymous_admin=True) as client:
        await contest(client)
        table = (await client.get("/boards/songs/records.csv")).content.decode("utf-8-sig")
        rows = [(row["rank"], row["member"], row["score"]) for row in csv.DictReader(io.StringIO(table))]
        second = [("2", "Cy", "0"), ("", "Ada", "0")] if zeros else [("", "Ada", "0"), ("", "Cy", "0")]
        assert rows == [("1", "Bob", "1"), *second]


async def test_a_member_stays_while_a_slot_holds_it(valkey_url: str) -> None:
    """Rotation looks at the other slots when a score becomes zero."""
    settings = fresh_settings(valkey_url)
    board: Board = read_board("b", {"window": {"rolling": "3h", "slot": "1h"}, "zeros": True, "clock": "event"})
    client = connect(valkey_url, settings)
    ledger = Ledger(client, board, settings)
    try:

        async def at(hour: int, *events: tuple[str, int]) -> list[tuple[str, int]]:
            await ledger.writer.add([make_entry(member, amount, hour * HOUR, None) for member, amount in events])
            while await ledger.rotator.rotate() is None:
                pass
            assert (await checked(client, settings, ledger.state.board)).clean
            return [(record.member, record.score) for record in (await ledger.reader.read(10)).records]

        assert await at(0, ("a", 5), ("b", 5), ("c", 0)) == [("a", 5), ("b", 5), ("c", 0)]
        assert await at(1, ("a", 0)) == [("b", 5), ("a", 5), ("c", 0)]
        assert await at(3, ("d", 1)) == [("b", 5), ("a", 5), ("d", 1), ("c", 0)]
        assert await at(4, ("d", 1)) == [("d", 2), ("a", 0)]
        assert await at(5, ("d", 1)) == [("d", 3)]
    finally:
        await client.aclose()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("window", WINDOWS)
def test_every_board_with_zeros_matches_the_reference(window: str, volatile_store: StoreProcess, effort: int) -> None:
    """Events, corrections, merges, hidden members, rotation and loads, in any order."""
    focus = {"window": window, "operator": "incr", "zeros": True}
    run_machine(lambda: BoardMachine(volatile_store, focus=focus), examples=12 * effort, steps=30)


MUTANTS = {
    "a zero is dropped in rotation": ("rolling", Mutant("rotate", "if stays[i] then", "if false then")),
    "a zero stays after its slots": ("rolling", Mutant("rotate", "if stays[i] then", "if true then")),
    "a zero is not counted": ("forever", Mutant("add", "and not rules.zeros", "")),
    "an event is not counted in the log": ("sliding", Mutant("add", "'\\0' .. member, 1)", "'\\0' .. member, 0)")),
    "a shown zero has no record": ("forever", Mutant("hide", "score == 0 and zero_is_none", "score == 0")),
}


@pytest.mark.mutant
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_zero_is_detected(name: str, volatile_store: StoreProcess) -> None:
    """Each mutant breaks the rule in one script."""
    window, mutant = MUTANTS[name]
    focus = {"window": window, "operator": "incr", "zeros": True, "votes": None}
    with must_be_caught(name):
        run_mutant(lambda: BoardMachine(volatile_store, mutant, focus), examples=300, steps=30)
