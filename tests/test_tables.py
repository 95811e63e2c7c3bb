"""Boards with several fields that add up: tables of leagues and championships."""

import gzip
import random
from collections import defaultdict
from typing import Any

import httpx
import msgspec
import pytest

from live.boards.definitions import read_board
from live.domain.packing import SumPacking
from live.web.pages.drawing import curl_of
from tests.harness.board_machine import TABLE, BoardMachine
from tests.harness.machines import run_machine, run_mutant
from tests.harness.mutation import Mutant, must_be_caught
from tests.harness.producer import post
from tests.harness.real_input import REAL_INPUT
from tests.harness.server import server
from tests.harness.store import StoreProcess

VOTES = REAL_INPUT.with_name("eurovision-votes.ndjson.gz")
PUBLISHED = REAL_INPUT.with_name("eurovision-totals.json")
FIELDS = [
    {"field": "points", "max": 114},
    {"field": "difference", "min": -200, "max": 200},
    {"field": "goals", "max": 300},
]
LEAGUE: dict[str, Any] = {"types": ["match"], "window": "forever", "score": FIELDS, "zeros": True}


def match(home: str, goals: int, away: str, against: int) -> list[dict[str, Any]]:
    """The events of a match, one for each club."""
    return [
        {
            "type": "match",
            "key": club,
            "fields": {
                "points": 3 if own > other else int(own == other),
                "difference": own - other,
                "goals": own,
            },
        }
        for club, own, other in ((home, goals, against), (away, against, goals))
    ]


async def rows_of(client: httpx.AsyncClient, board: str, query: str = "") -> list[tuple[Any, ...]]:
    """The member and the fields of each record, the first record first."""
    page = (await client.get(f"/v1/boards/{board}?limit=100{query}")).json()
    return [(record["key"], *record["fields"].values()) for record in page["records"]]


async def test_a_league_has_a_table(valkey_url: str) -> None:
    """Points decide, then the difference of goals, then goals. A club with no points has a place."""
    async with server(valkey_url, read_board("league", LEAGUE)) as client:
        await post(client, *match("Ajax", 3, "Brest", 1), *match("Celtic", 2, "Dinamo", 2))
        await post(client, *match("Ajax", 0, "Celtic", 4), {"type": "match", "key": "Ehime", "fields": {"points": 0}})
        assert await rows_of(client, "league") == [
            ("Celtic", 4, 4, 6), ("Ajax", 3, -2, 3), ("Dinamo", 1, 0, 2), ("Ehime", 0, 0, 0), ("Brest", 0, -2, 1),
        ]  # fmt: skip
        answer = (await client.post("/v1/events?rank=true", json=match("Brest", 2, "Ehime", 0))).json()
        assert [(one["key"], one["rank"], one["fields"]["points"]) for one in answer["records"]] == [
            ("Brest", 2, 3), ("Ehime", 5, 0),
        ]  # fmt: skip
        page = (await client.get("/boards/league")).text
        assert [f">{name}</" in page for name in ("points", "difference", "goals")] == [True] * 3
        table = (await client.get("/boards/league/records.csv")).content.decode("utf-8-sig").splitlines()
        assert table[:3] == ["rank,member,points,difference,goals", "1,Celtic,4,4,6", "2,Brest,3,0,3"]


def test_the_first_event_of_a_table_leaves_room() -> None:
    """The page of an empty board shows a command that can be repeated."""
    board = read_board("league", LEAGUE)
    command = curl_of({}, board, "http://127.0.0.1:8000", "", needs_key=False)
    assert command is not None
    assert '"fields":{"points":1,"difference":1,"goals":1}' in command


async def test_an_event_that_leaves_a_bound_is_refused(valkey_url: str) -> None:
    """Events of a body are judged together, and one by one only if their sum leaves a bound."""
    async with server(valkey_url, read_board("league", LEAGUE)) as client:

        async def codes(*fields: dict[str, int]) -> list[tuple[int, str]]:
            answer = await post(client, *({"type": "match", "key": "Ajax", "fields": each} for each in fields))
            return [(one["index"], one["code"]) for one in answer["rejected"]]

        assert await codes({"points": 114, "difference": -200}) == []
        assert await codes({"points": 1}, {"points": -1}) == []
        assert await codes({"points": 1}, {"goals": 7}) == [(0, "score_out_of_range")]
        assert await codes({"difference": -1}, {"points": -100}, {"points": -15}) == [
            (0, "score_out_of_range"), (2, "score_out_of_range"),
        ]  # fmt: skip
        assert await rows_of(client, "league") == [("Ajax", 14, -200, 7)]
        told = (await post(client, {"type": "match", "key": "Ajax", "fields": {"goals": 300}}))["rejected"]
        assert [one["detail"] for one in told] == [
            "a field would leave its bounds: points 0..114, difference -200..200, goals 0..300",
        ]  # fmt: skip
        assert await codes({"points": 115}, {"fouls": 1}, {}) == [(number, "fields_invalid") for number in range(3)]
        answer = await post(client, {"type": "match", "key": "Ajax"}, {"type": "match", "key": "Ajax", "amount": 3})
        assert {one["code"] for one in answer["rejected"]} == {"fields_invalid"}


@pytest.mark.parametrize("size", [7, 80])
async def test_amounts_in_a_sliding_window_have_room(valkey_url: str, size: int) -> None:
    """Events leave one by one, so amounts that cancel out take up room: 64 times the widest total."""
    fields = [{"field": "points", "max": 1}, {"field": "goals", "min": -9, "max": 9}]
    board = read_board("hot", {"window": {"sliding": "1h"}, "score": fields, "types": ["x"]})
    events = [{"type": "x", "key": "a", "fields": {"points": 1 - 2 * (number % 2)}} for number in range(80)]
    async with server(valkey_url, board) as client:
        refused = []
        for first in range(0, 80, size):
            answer = await post(client, *events[first : first + size])
            refused += [first + one["index"] for one in answer["rejected"]]
        assert refused == list(range(64, 80))
        await post(client, {"type": "x", "key": "a", "fields": {"goals": -3}})
        assert await rows_of(client, "hot") == [("a", 0, -3)]


async def test_an_administrator_corrects_fields(valkey_url: str) -> None:
    """A correction adds to fields, or sets them. It reaches the unions too."""
    parts = [read_board(name, {**LEAGUE, "types": [name]}) for name in ("home", "away")]
    union = read_board("all", {"union": ["home", "away"], "window": "forever", "score": FIELDS, "zeros": True})
    async with server(valkey_url, *parts, union, anonymous_admin=True) as client:
        await post(client, {"type": "home", "key": "Ajax", "fields": {"points": 3, "difference": 2}})
        await post(client, {"type": "away", "key": "Ajax", "fields": {"points": 1, "difference": -1, "goals": 5}})

        async def correct(**change: Any) -> int:
            body = {**change, "reason": "a protest"}
            return (await client.patch("/v1/boards/home/records/Ajax", json=body)).status_code

        assert await correct(add={"points": -3, "goals": 1}) == 200
        assert await rows_of(client, "home") == [("Ajax", 0, 2, 1)]
        assert await rows_of(client, "all") == [("Ajax", 1, 1, 6)]
        assert await correct(score={"points": 6, "difference": -4}) == 200
        assert await rows_of(client, "all") == [("Ajax", 7, -5, 5)]
        assert await correct(add={"points": -7}) == 409
        assert await correct(add={"fouls": 1}) == 422
        assert await rows_of(client, "home") == [("Ajax", 6, -4, 0)]


async def test_an_event_counts_in_a_union_once_for_each_part(valkey_url: str) -> None:
    """An event that feeds two parts counts twice."""
    parts = [read_board(name, LEAGUE) for name in ("one", "two")]
    union = read_board("all", {"union": ["one", "two"], "window": "forever", "score": FIELDS, "zeros": True})
    async with server(valkey_url, *parts, union) as client:
        await post(client, *match("Ajax", 1, "Brest", 4))
        answer = await post(client, {"type": "match", "key": "Ajax", "fields": {"points": 100}})
        assert [one["board"] for one in answer["rejected"]] == ["all"]
        assert await rows_of(client, "all") == [("Brest", 6, 6, 8), ("Ajax", 0, -6, 2)]


async def test_a_season_of_races(valkey_url: str) -> None:
    """Points decide, then wins, then the time of all races. The table of each race stays in the journal."""
    chance, drivers = random.Random(7), [f"driver {number}" for number in range(20)]
    fields = [
        {"field": "points", "max": 700},
        {"field": "wins", "max": 30},
        {"field": "ms", "order": "asc", "max": 2 * 10**8},
    ]
    board = read_board(
        "season", {"types": ["race"], "window": {"calendar": "year"}, "clock": "event", "score": fields, "zeros": True}
    )
    totals = {driver: [0, 0, 0] for driver in drivers}
    async with server(valkey_url, board, journal="sqlite") as client:
        for race in range(24):
            times = {driver: 5_400_000 + chance.randrange(100_000) for driver in drivers}
            order = sorted(drivers, key=times.__getitem__)
            events = []
            for place, driver in enumerate(order):
                points = (25, 18, 15, 12, 10, 8, 6, 4, 2, 1)[place] if place < 10 else 0
                more = {"points": points, "wins": int(not place), "ms": times[driver]}
                totals[driver] = [held + value for held, value in zip(totals[driver], more.values(), strict=True)]
                at = f"2025-{race // 2 + 1:02}-{race % 2 * 14 + 1:02}T15:00:00Z"
                events.append({"type": "race", "key": driver, "fields": more, "time": at})
            await post(client, *events)
            final = sorted(drivers, key=lambda one: (-totals[one][0], -totals[one][1], totals[one][2]))
            expected = [(one, *totals[one]) for one in final]
            assert await rows_of(client, "season") == expected
            if race == 11:
                half = expected
        assert await rows_of(client, "season", "&as_of=2025-06-20T00:00:00Z") == half
        explained = (await client.get(f"/v1/boards/season/records/{final[0]}/explanation")).json()
        assert [*explained["fields"].values()] == totals[final[0]]
        last = next(event for event in events if event["key"] == final[0])
        assert explained["changes"][0]["fields"] == last["fields"]
        span = "from=2025-06-20T00:00:00Z&to=2025-06-20T00:00:00Z"
        (step,) = (await client.get(f"/v1/boards/season/records/{half[0][0]}/history?{span}")).json()["records"][0][
            "steps"
        ]
        assert (step["rank"], *step["fields"].values()) == (1, *half[0][1:])


@pytest.mark.skipif(not VOTES.exists(), reason="the real input is not beside this checkout")
async def test_eurovision_by_points_voters_and_twelves(valkey_url: str) -> None:
    """65 finals, each a period: the published points, then how many voted for a country, then how many gave most."""
    fields = [{"field": "points", "max": 1500}, {"field": "voters", "max": 99}, {"field": "twelves", "max": 99}]
    window = {"calendar": "year", "keep": 100}
    board = read_board("esc", {"types": ["esc"], "window": window, "clock": "event", "score": fields, "zeros": True})
    totals: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0, 0]))
    events = []
    for line in gzip.decompress(VOTES.read_bytes()).splitlines():
        event = msgspec.json.decode(line)
        amount = event.pop("amount")
        more = [amount, int(amount > 0), int(amount == 12)]
        held = totals[event["time"][:4]][event["key"]]
        held[:] = map(sum, zip(held, more, strict=True))
        events.append({**event, "fields": dict(zip(("points", "voters", "twelves"), more, strict=True))})
    async with server(valkey_url, board) as client:
        for first in range(0, len(events), 1000):
            assert not (await post(client, *events[first : first + 1000]))["rejected"]
        published = msgspec.json.decode(PUBLISHED.read_bytes())
        for year, countries in published.items():
            rows = await rows_of(client, "esc", f"&period={year}")
            assert [row[1:] for row in rows] == sorted(map(tuple, totals[year].values()), reverse=True)
            assert {row[0]: row[1] for row in rows} == countries


WINDOWS = ("rolling", "sliding", "last", "forever", "hours", "days")


def focus_of(window: str) -> dict[str, object]:
    """The choices of a board with fields that add up."""
    return {"window": window, "operator": "incr", "score": TABLE, "sort_order": "desc", "votes": None}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("window", WINDOWS)
def test_every_table_matches_the_reference(window: str, volatile_store: StoreProcess, effort: int) -> None:
    """Events, corrections, merges, hidden members, rotation and loads, in any order. Some leave the bounds."""
    run_machine(lambda: BoardMachine(volatile_store, focus=focus_of(window)), examples=12 * effort, steps=30)


MUTANTS = {
    "no bound is checked": ("hours", Mutant("add", "(fields or widest > most) and", "widest > most and")),
    "a negative field is not taken": ("sliding", Mutant("expire_events", "if under > 0 then", "if false then")),
}


@pytest.mark.mutant
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_sum_is_detected(name: str, volatile_store: StoreProcess) -> None:
    """Each mutant breaks a script."""
    window, mutant = MUTANTS[name]
    with must_be_caught(name):
        run_mutant(lambda: BoardMachine(volatile_store, mutant, focus_of(window)), examples=300, steps=30)


@pytest.mark.mutant
@pytest.mark.timeout(900)
def test_a_truncated_total_is_detected(volatile_store: StoreProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A total that is read by truncation is wrong if a later field is below zero."""

    def truncated(self: SumPacking, score: int) -> dict[str, int]:
        values = {}
        for field, digit in zip(self.fields, self.digits, strict=True):
            value = int(score / digit.weight)
            values[field.name] = value if field.sort_order == "desc" else -value
            score -= value * digit.weight
        return values

    monkeypatch.setattr(SumPacking, "unpack", truncated)
    with must_be_caught("a total is unpacked by truncation"):
        run_mutant(lambda: BoardMachine(volatile_store, focus=focus_of("forever")), examples=300, steps=30)
