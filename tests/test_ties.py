"""Boards with ties by time: among equal scores, the time of an event decides, and not the time of its arrival."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from live.boards.definitions import read_board
from live.domain.board_file import parse_boards
from tests.harness.board_machine import BoardMachine
from tests.harness.machines import run_machine, run_mutant
from tests.harness.mutation import Mutant, must_be_caught
from tests.harness.producer import post
from tests.harness.server import server
from tests.harness.store import StoreProcess

RECIPES = Path(__file__).parent.parent / "docs" / "examples" / "recipes" / "recipes.toml"
KINDS = [
    *((window, "incr") for window in ("rolling", "sliding", "last", "forever", "hours", "days")),
    *((window, operator) for window in ("forever", "hours", "days") for operator in ("best", "set")),
]
CHOICES: dict[str, dict[str, Any]] = {
    "sums": {"window": "forever"},
    "slots": {},
    "sliding": {"window": {"sliding": "1h"}},
    "zeros": {"window": "forever", "zeros": True},
    "best": {"window": "forever", "operator": "best"},
    "least": {"window": "forever", "operator": "best", "sort_order": "asc"},
    "cap": {"window": "forever", "operator": "best", "cap": 5},
    "set": {"window": "forever", "operator": "set"},
    "clock": {"clock": "event"},
    "days": {"window": {"calendar": "day", "grace": "2d"}},
    "old": {"window": "forever", "clock": "event"},
}


NOW = datetime.now(UTC)
BEGINS = {
    "old": datetime(1912, 7, 1, 12, tzinfo=UTC),
    "days": NOW.replace(hour=12, minute=0) - timedelta(days=1),  # events come in the grace time
}


def at(seconds: float, kind: str = "") -> str:
    """Return a time that is some seconds after a moment: five minutes ago, unless the kind of board has another."""
    return (BEGINS.get(kind, NOW - timedelta(minutes=5)) + timedelta(seconds=seconds)).isoformat()


@pytest.mark.parametrize("ties", ["first", "last"])
@pytest.mark.parametrize("kind", CHOICES)
async def test_a_tie_goes_by_the_time_of_the_event(valkey_url: str, kind: str, ties: str) -> None:
    """In one body and in two, whoever comes first. Without a time, an event happens when it arrives."""
    board = read_board("posts", {**CHOICES[kind], "types": ["like"], "ties": ties})
    sent = [("b", 30), ("a", 0), ("d", 31), ("c", 1)]
    events = [{"key": member, "amount": 3, "time": at(seconds, kind)} for member, seconds in sent]
    async with server(valkey_url, board) as client:
        await post(client, *events[:2])
        for event in events[2:]:
            await post(client, event)
        order = ["a", "c", "b", "d"]
        if kind not in {"clock", "old", "days"}:
            await post(client, {"key": "now", "amount": 3})
            order.append("now")
        period = {"period": BEGINS["days"].date().isoformat()} if kind == "days" else {}
        records = (await client.get("/v1/boards/posts", params=period)).json()["records"]
        assert [record["key"] for record in records] == (order if ties == "first" else order[::-1])


async def test_a_later_event_with_an_earlier_time_moves_a_best_score_only(valkey_url: str) -> None:
    """A sum is reached with its latest event, and a best score with its earliest."""
    names = ("sum", "best")
    boards = [read_board(name, {"window": "forever", "operator": operator, "types": ["like"]})
              for name, operator in zip(names, ("incr", "best"), strict=True)]  # fmt: skip
    async with server(valkey_url, *boards) as client:
        sent = [("a", 30), ("b", 20), ("a", 10), ("b", 40), ("c", None), ("c", 25), ("c", -1)]
        for member, seconds in sent:
            amount = 3 if member != "c" else 2
            await post(client, {"key": member, "amount": amount, **({} if seconds is None else {"time": at(seconds)})})
        found = [(await client.get(f"/v1/boards/{name}")).json()["records"] for name in names]
        assert [[record["key"] for record in records] for records in found] == [["a", "b", "c"], ["a", "b", "c"]]


async def test_a_union_goes_by_the_time_of_the_event(valkey_url: str) -> None:
    """The union has events of both parts."""
    parts = [read_board(name, {"types": [name]}) for name in ("left", "right")]
    async with server(valkey_url, *parts, read_board("all", {"union": ["left", "right"]})) as client:
        for kind, member, seconds in (("left", "b", 30), ("right", "a", 0), ("left", "c", 10)):
            await post(client, {"type": kind, "key": member, "time": at(seconds)})
        records = (await client.get("/v1/boards/all")).json()["records"]
        assert [record["key"] for record in records] == ["a", "c", "b"]


async def test_a_team_keeps_the_time_of_its_own_solve(valkey_url: str) -> None:
    """The recipe for a CTF: each solve lowers the points of all teams that have solved the same task before."""
    chance, teams = Random(1), [f"team {number}" for number in range(300)]
    (board,) = [board for board in parse_boards(RECIPES.read_text(encoding="utf-8")) if board.id == "ctf"]
    solvers: dict[int, list[str]] = {task: [] for task in range(6)}
    solved, points = dict.fromkeys(teams, 0), dict.fromkeys(teams, 0)
    solves = [(team, task) for team in teams for task in solvers if chance.random() < 0.7]
    chance.shuffle(solves)
    async with server(valkey_url, board) as client:
        for second, (team, task) in enumerate(solves, 1):
            solvers[task].append(team)
            solved[team] = second
            if second % 40 and second < len(solves):  # the contest sends the new points now and then
                continue
            worth = {each: max(100, 500 - len(its)) for each, its in solvers.items()}
            points = {each: sum(worth[one] for one, its in solvers.items() if each in its) for each in teams}
            fields = [(each, {"points": points[each], "solved": solved[each]}) for each in teams if solved[each]]
            chance.shuffle(fields)
            await post(client, *({"type": "points", "key": each, "fields": its} for each, its in fields))
        page = (await client.get("/v1/boards/ctf", params={"limit": 300})).json()
    wanted = sorted((team for team in teams if solved[team]), key=lambda team: (-points[team], solved[team]))
    assert len({points[team] for team in wanted}) < len(wanted), "there are no ties"
    assert [record["key"] for record in page["records"]] == wanted


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("window", "operator"), KINDS)
def test_every_board_with_ties_by_time_matches_the_reference(
    window: str, operator: str, volatile_store: StoreProcess, effort: int
) -> None:
    """Events come out of order by up to three hours, between corrections, merges, rotation and loads."""
    focus = {"window": window, "operator": operator, "ties": "first" if len(window) % 2 else "last"}
    run_machine(lambda: BoardMachine(volatile_store, focus=focus), examples=4 * effort, steps=30)


MUTANTS = {
    "a tag has the time of arrival": (
        "forever",
        "incr",
        Mutant("add", "local time = times and times[i] or at", "local time = at"),
    ),
    "a sum is reached with its newest event": (
        "forever",
        "incr",
        Mutant("add", "return time >= time_of(name)", "return true"),
    ),
    "a best score is reached with a later event": (
        "forever",
        "best",
        Mutant("add", " or rules.operation ~= 'set' and time < time_of(name)", ""),
    ),
    "a worse event moves a best score": (
        "forever",
        "best",
        Mutant("add", "elseif orders and amounts[j] ~= value then", "elseif false then"),
    ),
    "an arrival is forgotten": (
        "forever",
        "incr",
        Mutant("add", "if incr and at >= group.times[j]", "if incr and false"),
    ),
    "a lost tag is not in the journal": (
        "sliding",
        "incr",
        Mutant("add", "local is_told = rules.told", "local is_told = false"),
    ),
    "a hidden member keeps an old tag": (
        "forever",
        "incr",
        Mutant("add", "if tag_hidden and next(group.unseen) then", "if false then"),
    ),
}


@pytest.mark.mutant
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_tag_is_detected(name: str, volatile_store: StoreProcess) -> None:
    """Each mutant breaks the rule in one script."""
    window, operator, mutant = MUTANTS[name]
    focus = {"window": window, "operator": operator, "ties": "first", "votes": None, "cap": None, "zeros": False}
    if name == "an arrival is forgotten":
        focus["clock"] = "server"
    with must_be_caught(name):
        run_mutant(lambda: BoardMachine(volatile_store, mutant, focus), examples=500, steps=30)
