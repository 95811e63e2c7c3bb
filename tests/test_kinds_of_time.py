"""Boards with calendar periods, from their definition to what people see."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from html import unescape
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pytest

from live.domain.calendar import Unit
from live.web.pages.language import languages
from live.web.pages.words import period_words
from tests.harness.stage import Rows, Stage, ranking, sees, stage

pytestmark = pytest.mark.slow

BERLIN = ZoneInfo("Europe/Berlin")
DAY = timedelta(days=1)


def moment(text: str, zone: ZoneInfo = BERLIN) -> datetime:
    """The UTC time at which the clocks of a zone show `text`."""
    return datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)


def of_week(first: date) -> str:
    """The name of the week that begins on the day `first`. The week belongs to the year of its fourth day."""
    fourth = first + 3 * DAY
    return f"{fourth.year}-W{(fourth.timetuple().tm_yday + 6) // 7:02}"


NAMES: dict[str, Callable[[datetime], str]] = {
    "hours": lambda local: f"{local:%Y-%m-%dT%H}" + (f"{local:%z}" if local.fold else ""),
    "days": lambda local: local.date().isoformat(),
    "weeks": lambda local: "{}-W{:02}".format(*local.isocalendar()),
    "sundays": lambda local: of_week(local.date() - (local.weekday() + 1) % 7 * DAY),
    "seasons": lambda local: "{}-W{:02}".format(*(local - timedelta(hours=9)).isocalendar()),
    "months": lambda local: f"{local:%Y-%m}",
    "quarters": lambda local: f"{local.year}-Q{(local.month + 2) // 3}",
    "years": lambda local: f"{local.year}",
}
KEEP = {"hours": 5, "days": 3, "weeks": 2, "sundays": 3, "seasons": 2, "months": 2, "quarters": 1, "years": 1}


def unit_of(board: str) -> Unit:
    """The unit of a board's periods."""
    return next((unit for unit in get_args(Unit) if board == f"{unit}s"), "week")


def calendars() -> str:
    """The definitions of the boards in `KEEP`."""
    text = ""
    for board, keep in KEEP.items():
        window = f'calendar = "{unit_of(board)}"'
        if board == "sundays":
            window += ', week_start = "sunday"'
        if board == "seasons":
            window += ', day_start = "09:00"'
        window += f', timezone = "Europe/Berlin", keep = {keep}'
        text += f'[[board]]\nid = "{board}"\nclock = "event"\nties = "key"\nwindow = {{ {window} }}\n'
    return text


def names_before(board: str, now: datetime) -> Iterator[str]:
    """The names of the periods at and before a time, newest first, found in steps of half an hour."""
    last = ""
    while True:
        name = NAMES[board](now.astimezone(BERLIN))
        if name != last:
            yield name
        last, now = name, now - timedelta(minutes=30)


STOPS = [
    "2020-10-25T23:59",  # on this day, the hour after 2:00 comes twice
    "2020-12-31T12:00",  # in the week of this day, 2020 ends and 2021 begins
    "2021-01-03T23:00",  # the last day of that week; if weeks begin on Sunday, the first day of the next week
    "2021-01-04T00:00",
    "2021-03-28T23:59",  # on this day, the hour after 2:00 is skipped
    "2021-04-01T05:00",
]


@pytest.mark.slow
async def test_calendar_boards_match_a_plain_count(valkey_url: str) -> None:
    """At many times, each kept period has the scores of a plain count, and older periods are gone."""
    chance = random.Random(4)
    counts: dict[str, dict[str, Counter[str]]] = {board: {} for board in KEEP}
    now = moment("2020-10-20T00:00")
    async with stage(valkey_url, calendars()) as boards, boards.watching("days") as viewer:
        for stop in STOPS:
            until, times = moment(stop), []
            while now <= until:
                times.append(now)
                now += timedelta(minutes=20) if now > until - timedelta(hours=30) else timedelta(hours=5)
            times.append(until)
            now = until
            batch = [(time, f"k{chance.randrange(6)}") for time in times]
            for time, member in batch:
                for board, name in NAMES.items():
                    counts[board].setdefault(name(time.astimezone(BERLIN)), Counter())[member] += 1
            await boards.accept(*({"key": member, "time": time.isoformat()} for time, member in batch))
            for board, keep in KEEP.items():
                await compare(boards, board, keep, now, counts[board])
            await sees(viewer, await boards.rows("days"))
            assert viewer.period == stop[:10]
        for board, keep in KEEP.items():
            current, *_ = names_of(board, now, 1)
            assert await boards.shown(board) == ranking(counts[board][current].items())
            page = unescape((await boards.get(f"/boards/{board}")).decode())
            assert period_words(languages()["en"], unit_of(board), current) in page
            assert await boards.problem(f"/v1/boards/{board}", period="2020-13-45") == (400, "parameter_invalid")
            *_, gone = names_of(board, now, keep + 2)
            assert await boards.problem(f"/v1/boards/{board}", period=gone) == (404, "period_not_found")


def names_of(board: str, now: datetime, count: int) -> list[str]:
    """The names of the `count` newest periods."""
    return [name for name, _ in zip(names_before(board, now), range(count), strict=False)]


async def compare(boards: Stage, board: str, keep: int, now: datetime, counts: dict[str, Counter[str]]) -> None:
    """Check each kept period by its name, and the two newest ones also as `current` and `previous`."""
    names = names_of(board, now, keep + 1)
    for number, name in enumerate(names):
        right = ranking(counts.get(name, Counter()).items())
        for word in (name, *{0: ["current"], 1: ["previous"]}.get(number, [])):
            page = await boards.page(board, period=word)
            assert page.period == name
            assert [(record.member, record.score) for record in page.records] == right, (board, name)


async def test_calendar_days_have_23_and_25_hours(valkey_url: str) -> None:
    """With a like per hour, the day when New York sets its clocks back has 25 likes.

    The day when it sets them forward has 23.
    """
    text = 'clock = "event"\nwindow = { calendar = "day", timezone = "America/New_York" }\n'
    async with stage(valkey_url, f'[[board]]\nid = "days"\n{text}') as boards:
        zone = ZoneInfo("America/New_York")
        for first, hours in (("2023-03-12", 23), ("2023-03-13", 24), ("2023-11-05", 25)):
            start = moment(first, zone)
            await boards.accept(
                *({"key": "a", "time": (start + timedelta(hours=hour)).isoformat()} for hour in range(hours + 1))
            )
            assert await boards.rows("days", period=first) == [("a", hours)]
            assert await boards.rows("days", period="previous") == [("a", hours)]
            assert await boards.shown("days") == [("a", 1)]
            await boards.accept({"key": "a", "time": (start + timedelta(hours=hours)).isoformat(), "amount": -1})


async def test_a_late_event_counts_in_its_period_within_the_grace(valkey_url: str) -> None:
    """A day still accepts events for two hours after its end, although the next day is the current day.

    After these two hours, events of the day are refused as late.
    """
    window = 'calendar = "day", timezone = "Europe/Berlin", grace = "2h", keep = 1'
    text = f'[[board]]\nid = "days"\nclock = "event"\nwindow = {{ {window} }}\n'
    async with stage(valkey_url, text) as boards, boards.watching("days") as viewer:
        evening = {"key": "late", "time": moment("2024-05-01T23:00").isoformat()}
        await boards.accept(evening)
        await boards.accept({"key": "new", "time": moment("2024-05-02T01:59:59.999").isoformat()}, evening)
        assert await boards.shown("days") == [("new", 1)]
        assert await boards.rows("days", period="previous") == [("late", 2)]
        await sees(viewer, [("new", 1)])

        new = {"key": "new", "time": moment("2024-05-02T02:00").isoformat()}
        assert await boards.refused(new, evening) == ["late"]
        assert await boards.rows("days", period="2024-05-01") == [("late", 2)]
        await boards.accept({"key": "next", "time": moment("2024-05-03T00:00").isoformat()}, new)
        assert await boards.rows("days", period="2024-05-02") == [("new", 3)]
        assert await boards.problem("/v1/boards/days", period="2024-05-01") == (404, "period_not_found")
        assert await boards.problem("/v1/boards/days/records/late", period="2024-05-01") == (404, "period_not_found")


COMPOSED = {"days": "day", "threes": "day", "sevens": "day", "months": "month", "years": "year"}


def composed() -> str:
    """The definitions of the boards in `COMPOSED`: days, and windows that consist of days."""
    late = ', grace = "1h"'  # the grace of all boards without `last`
    more = {"days": f"{late}, keep = 400", "threes": ", last = 3", "sevens": ", last = 7"}
    text = ""
    for board, unit in COMPOSED.items():
        window = f'calendar = "{unit}", timezone = "America/New_York"{more.get(board, late)}'
        text += f'[[board]]\nid = "{board}"\nclock = "event"\nties = "key"\nwindow = {{ {window} }}\n'
    return text


@pytest.mark.slow
async def test_days_add_up(valkey_url: str) -> None:
    """The last 3 and 7 days, the month and the year are the sums of their days."""
    chance = random.Random(5)
    zone = ZoneInfo("America/New_York")
    now = datetime(2023, 10, 25, tzinfo=UTC)
    first = now.astimezone(zone).date()
    async with stage(valkey_url, composed()) as boards, boards.watching("sevens") as viewer:
        for number in range(45):
            now += timedelta(hours=28 * 24 if number == 20 else chance.choice([1, 5, 30, 50]))
            batch: list[dict[str, Any]] = [
                {
                    "key": f"k{chance.randrange(7)}",
                    "amount": chance.randint(-2, 4),
                    "time": (now - timedelta(minutes=chance.randrange(50) if i else 0)).isoformat(),
                }
                for i in range(chance.randint(2, 8))
            ]
            await boards.accept(*batch)
            if number % 5 == 4:
                today = now.astimezone(zone).date()
                days = [today - number * DAY for number in range((today - first).days + 1)]
                by_day = {day: dict(await boards.rows("days", period=day.isoformat())) for day in days}
                parts = {
                    "threes": days[:3],
                    "sevens": days[:7],
                    "months": [day for day in days if day.replace(day=1) == today.replace(day=1)],
                    "years": [day for day in days if day.year == today.year],
                }
                for board, part in parts.items():
                    assert await boards.shown(board) == added(by_day[day] for day in part), (board, today)
                await sees(viewer, await boards.rows("sevens"))
        assert now.year == 2024


def added(parts: Iterator[dict[str, int]]) -> Rows:
    """The ranking by the summed scores of several rankings, without members whose sum is zero."""
    sums: Counter[str] = Counter()
    for part in parts:
        sums.update(part)
    return ranking((member, score) for member, score in sums.items() if score)
