"""Real input on a contest, calendar boards and a sliding window, compared with a plain count over the file."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.harness.real_input import REAL_INPUT, load, seconds
from tests.harness.stage import Rows, Stage, ranking, rows_of, stage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not REAL_INPUT.exists(), reason="the real input is not beside this checkout"),
]

CHUNK = 500
ZONES = {"shanghai": ZoneInfo("Asia/Shanghai"), "new-york": ZoneInfo("America/New_York")}
BOARD = '[[board]]\nid = "{id}"\ntypes = ["request"]\nclock = "event"\nties = "key"\n'


def chunks(events: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Split the events of the file into bodies."""
    return (events[first : first + CHUNK] for first in range(0, len(events), CHUNK))


async def whole(boards: Stage, board: str, **query: Any) -> Rows:
    """Every record of a board."""
    return [row for page in await boards.walk(board, 1000, **query) for row in rows_of(page)]


async def test_a_contest_counts_distinct_visitors_per_path_and_day(valkey_url: str) -> None:
    """A contest counts each visitor of a path once a day, and refuses the visitor's further visits on that day."""
    window = 'window = { calendar = "day", grace = "1h" }\nvotes = { per_key = 1 }\n'
    events = load()
    days: dict[str, set[tuple[str, str]]] = defaultdict(set)
    async with stage(valkey_url, BOARD.format(id="visitors") + window) as boards:
        for body in chunks(events):
            fresh = set()
            for index, event in enumerate(body):
                seen, visit = days[event["time"][:10]], (event["key"], event["actor"])
                fresh |= set() if visit in seen else {index}
                seen.add(visit)
            answer = await boards.post(*body)
            assert answer["accepted"] == len(fresh)
            refused = {rejection["index"]: rejection["code"] for rejection in answer["rejected"]}
            assert refused == dict.fromkeys(set(range(len(body))) - fresh, "quota_exceeded")
        assert len(days) == 4
        for day, visits in days.items():
            right = ranking(Counter(member for member, _ in visits).items())
            assert await whole(boards, "visitors", period=day) == right
            assert (await boards.page("visitors", period=day)).total_score == len(visits)
        assert await boards.shown("visitors") == right[:50]


async def test_calendar_days_and_weeks_follow_their_zone(valkey_url: str) -> None:
    """The days and ISO weeks are those of Shanghai and of New York."""
    text = ""
    for zone, info in ZONES.items():
        for unit in ("day", "week"):
            window = f'window = {{ calendar = "{unit}", timezone = "{info.key}", grace = "1h" }}\n'
            text += BOARD.format(id=f"{unit}s-{zone}") + window
    events = load()
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for event in events:
        for zone, info in ZONES.items():
            local = datetime.fromisoformat(event["time"]).astimezone(info)
            counts[f"days-{zone}"][local.date().isoformat()][event["key"]] += 1
            counts[f"weeks-{zone}"]["{}-W{:02}".format(*local.isocalendar())][event["key"]] += 1
    async with stage(valkey_url, text) as boards:
        for body in chunks(events):
            await boards.accept(*body)
        for board, periods in counts.items():
            for name, keys in periods.items():
                assert await whole(boards, board, period=name) == ranking(keys.items()), (board, name)
            assert (await boards.shown(board)) == ranking(periods[max(periods)].items())[:50]
    assert {board: len(periods) for board, periods in counts.items()} == {
        "days-shanghai": 5,
        "weeks-shanghai": 2,
        "days-new-york": 4,
        "weeks-new-york": 2,
    }


async def test_a_sliding_hour_is_exact(valkey_url: str) -> None:
    """At many instants, the board has the requests of the last 3,600 seconds, and no older requests."""
    events = load()
    sent: list[dict[str, Any]] = []
    async with stage(valkey_url, BOARD.format(id="hour") + 'window = { sliding = "1h" }\n') as boards:
        for body in chunks(events):
            for part in (body[:7], body[7:]):
                await boards.accept(*part)
                sent += part
                now = max(map(seconds, sent))
                right = ranking(Counter(event["key"] for event in sent if seconds(event) > now - 3600).items())
                assert await whole(boards, "hour") == right
        assert await boards.shown("hour") == right[:50]
