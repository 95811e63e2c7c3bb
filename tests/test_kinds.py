"""Boards from their definition to what people see: totals, best values, votes and sliding windows."""

import asyncio
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from live.store.board.keys import Keys
from tests.harness.stage import Rows, Stage, ranking, rows_of, sees, stage, until
from tests.harness.waiting import eventually

pytestmark = pytest.mark.slow

START = datetime(2024, 2, 1, tzinfo=UTC)


def at(seconds: float) -> str:
    """The event time that is `seconds` after `START`."""
    return (START + timedelta(seconds=seconds)).isoformat()


STATISTICS = """
[[board]]
id = "minutes"
window = { rolling = "10m", slot = "1m" }
clock = "event"
ties = "key"
[[board]]
id = "hours"
window = { rolling = "24h", slot = "1h" }
clock = "event"
ties = "key"
[[board]]
id = "days"
window = { rolling = "7d", slot = "1d" }
clock = "event"
ties = "key"
"""


async def test_one_event_feeds_several_moving_windows(valkey_url: str) -> None:
    """One event feeds windows of minutes, hours and days.

    Page by page, each board shows the same sums as a plain count of the events, without members whose sum is zero.
    """
    chance = random.Random(1)
    windows = {"minutes": (600, 60), "hours": (86_400, 3600), "days": (7 * 86_400, 86_400)}
    sent: list[tuple[int, str, int]] = []
    now = 0

    def expected(board: str) -> Rows:
        length, slot = windows[board]
        sums: Counter[str] = Counter()
        for moment, member, amount in sent:
            sums[member] += amount if moment // slot * slot >= now // slot * slot - length else 0
        return ranking((member, score) for member, score in sums.items() if score)

    async with stage(valkey_url, STATISTICS) as boards:
        for _ in range(40):
            now += chance.choice([20, 60, 300, 3000, 25_200, 86_400])
            batch = [(now, f"k{chance.randrange(9)}", chance.randint(-2, 5)) for _ in range(chance.randint(1, 12))]
            batch += [(max(0, now - chance.randrange(300)), "late but in time", 1)]
            sent += batch
            await boards.accept(*({"key": member, "amount": amount, "time": at(t)} for t, member, amount in batch))
            for board in windows:
                rows = expected(board)
                pages = await boards.walk(board, 3)
                assert [rows_of(page) for page in pages] == [rows[i : i + 3] for i in range(0, len(rows) or 1, 3)]
                assert pages[0].total_score == sum(score for _, score in rows)
        for board in windows:
            rows = expected(board)
            assert await boards.shown(board) == rows
            assert await boards.rows(board, limit=1) == rows[:1]
            async with boards.watching(board) as viewer:
                member, score = rows[0]
                await boards.accept({"board": board, "key": member, "amount": -score, "time": at(now)})
                assert await boards.shown(board) == rows[1:]
                await sees(viewer, rows[1:])
            assert await boards.problem(f"/v1/boards/{board}/records/{member}") == (404, "record_not_found")


BEST = """
[[board]]
id = "top"
operator = "{operator}"
sort_order = "{order}"
window = "forever"
cap = {cap}
ties = "{ties}"
"""


@pytest.mark.parametrize(("operator", "order"), [("best", "desc"), ("best", "asc"), ("set", "desc")])
async def test_a_board_keeps_the_top_500_by_best_value(valkey_url: str, operator: str, order: str) -> None:
    """With 16 producers, the board never has more than 500 records, and never fewer once it is full.

    Each record has the metadata of the event that gave its score.
    """
    chance = random.Random(2)
    sent = [(f"k{chance.randrange(3000)}", chance.randint(-500, 2000)) for _ in range(6400)]
    bodies = [range(i, i + 40) for i in range(0, len(sent), 40)]
    done = asyncio.Event()

    async def send(boards: Stage, poster: int) -> None:
        for numbers in bodies[poster::16]:
            await boards.accept(*(best(*sent[number], number) for number in numbers))

    async def look(boards: Stage) -> list[int]:
        counts = []
        while not done.is_set():
            page = await boards.page("top", limit=1000)
            assert len(page.records) == page.rank_count
            counts.append(page.rank_count)
        return counts

    text = BEST.format(operator=operator, order=order, cap=500, ties="key")
    async with stage(valkey_url, text) as boards, boards.watching("top") as viewer:
        posting = asyncio.gather(*(send(boards, poster) for poster in range(16)))
        _, *seen = await asyncio.gather(until(posting, done), look(boards), look(boards))

        page = await boards.page("top", limit=1000)
        assert all(counts == sorted(counts) and counts[-1] == page.rank_count == 500 for counts in seen)
        for record in page.records:
            assert sent[metadata_of(record.metadata)["event"]] == (record.member, record.score)
        if operator == "best":
            better = max if order == "desc" else min
            kept: dict[str, int] = {}
            for member, score in sent:
                kept[member] = better(score, kept.get(member, score))
            assert rows_of(page) == ranking(kept.items(), ascending=order == "asc")[:500]
        await sees(viewer, rows_of(page)[:50])
        assert await boards.shown("top") == rows_of(page)[:50]
        assert await boards.store.hlen(Keys(boards.settings.key_prefix, "top").table().metadata) == 500


def best(member: str, amount: int, number: int) -> dict[str, Any]:
    """An event with its number in the metadata."""
    return {"key": member, "amount": amount, "metadata": {"event": number}}


def metadata_of(raw: Any) -> dict[str, int]:
    """Decoded metadata."""
    found: dict[str, int] = msgspec.json.decode(raw)
    return found


@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_top_3_by_best_value_keeps_ties_by_rule(valkey_url: str, order: str) -> None:
    """Among equal scores, the rule for ties decides who is ahead and stays in the top three.

    A dropped record loses its metadata.
    """
    way = 1 if order == "desc" else -1
    for ties, kept in (("first", ["a", "b", "c"]), ("last", ["d", "c", "b"]), ("key", ["a", "b", "c"])):
        async with stage(valkey_url, BEST.format(operator="best", order=order, cap=3, ties=ties)) as boards:
            for member in "abcd":
                await boards.accept({"key": member, "amount": 5 * way, "metadata": {"of": member}})
            assert await boards.shown("top") == [(member, 5 * way) for member in kept]
            dropped = next(member for member in "abcd" if member not in kept)
            assert await boards.problem(f"/v1/boards/top/records/{dropped}") == (404, "record_not_found")

            # The member returns to the board without its old metadata.
            await boards.accept({"key": dropped, "amount": 9 * way})
            page = await boards.page("top")
            assert [bool(record.metadata) for record in page.records] == [False, True, True]
            await boards.accept({"key": dropped, "amount": 8 * way, "metadata": {"of": "worse"}})
            assert await boards.shown("top") == [(dropped, 9 * way), *((member, 5 * way) for member in kept[:2])]
            assert (await boards.page("top")).records == page.records


async def test_the_latest_value_is_kept(valkey_url: str) -> None:
    """With `set`, a member has the value and metadata of its newest event, even if the value equals the old value."""
    async with stage(valkey_url, BEST.format(operator="set", order="desc", cap=2, ties="first")) as boards:
        await boards.accept({"key": "a", "amount": 7, "metadata": {"event": 1}}, {"key": "b", "amount": 5})
        await boards.accept({"key": "a", "amount": 3, "metadata": {"event": 2}})
        assert await boards.shown("top") == [("b", 5), ("a", 3)]
        assert metadata_of((await boards.record("top", "a")).metadata) == {"event": 2}
        await boards.accept({"key": "a", "amount": 3, "metadata": {"event": 3}})
        assert metadata_of((await boards.record("top", "a")).metadata) == {"event": 3}
        await boards.accept({"key": "c", "amount": 4}, {"key": "c", "amount": 0})
        assert await boards.shown("top") == [("b", 5), ("a", 3)]


CONTEST = """
[[board]]
id = "contest"
window = "forever"
votes = { per_key = 1, per_actor = 4 }
"""


async def test_an_actor_has_a_limit_of_votes(valkey_url: str) -> None:
    """An actor has four votes, one per member, however many requests are concurrent. A vote can be taken back."""
    async with stage(valkey_url, CONTEST) as boards, boards.watching("contest") as viewer:

        async def vote(actor: str, member: str, amount: int = 1) -> str:
            codes = await boards.refused({"key": member, "actor": actor, "amount": amount})
            return codes[0] if codes else "counted"

        results = Counter(await asyncio.gather(*(vote("eager", f"c{number}") for number in range(100))))
        assert results == {"counted": 4, "quota_exceeded": 96}
        results = Counter(await asyncio.gather(*(vote("fond", "c7") for _ in range(100))))
        assert results == {"counted": 1, "quota_exceeded": 99}
        mine = [member for member, _ in await boards.rows("contest", limit=100)]
        page = await boards.page("contest", limit=10)
        assert (page.rank_count, page.total_score) == (len(mine), 5)

        own = next(member for member in mine if member != "c7")
        assert [await vote("eager", own, -1) for _ in range(2)] == ["counted", "vote_missing"]
        assert await vote("eager", "freed") == "counted"
        assert await vote("eager", "again") == "quota_exceeded"
        assert await boards.refused({"key": "c1"}) == ["actor_required"]

        for number, member in enumerate(["x", "y", "y", "z", "z", "x"]):  # z gets its second vote before x does
            assert await vote(f"v{number}", member) == "counted"
        top = await boards.shown("contest")
        assert top[: 3 if dict(top).get("c7") != 2 else 4][-3:] == [("y", 2), ("z", 2), ("x", 2)]
        await sees(viewer, top)
        third = await boards.record("contest", "x", around=1)
        assert (third.score, third.gap) == (2, 0)
        assert third.rank == 1 + [member for member, _ in top].index("x")
        assert [record.member for record in third.records][:2] == ["z", "x"]
        fresh = await boards.record("contest", "freed")
        ahead = [member for member, _ in top].index("freed")
        assert (fresh.score, fresh.rank, fresh.gap) == (1, ahead + 1, top[ahead - 1][1] - 1)


async def test_a_contest_opens_and_closes(valkey_url: str) -> None:
    """Votes before the contest opens and after it closes are refused."""
    opens = datetime.now(UTC) + timedelta(seconds=4)
    text = ""
    for name, times in {
        "later": f"opens = {opens.isoformat()}",
        "over": "closes = 2024-02-01T00:00:00Z",
        "briefly": f"opens = 2024-02-01T00:00:00Z, closes = {opens.isoformat()}",
    }.items():
        text += f'[[board]]\nid = "{name}"\nwindow = "forever"\nvotes = {{ per_actor = 1, {times} }}\n'
    async with stage(valkey_url, text) as boards:

        async def votes(board: str, actor: str) -> list[str]:
            return await boards.refused({"board": board, "key": "c", "actor": actor})

        assert [await votes(board, "early") for board in ("later", "over", "briefly")] == [["not_open"], ["closed"], []]

        async def opened() -> bool:
            return await votes("later", "keen") == []

        await eventually(opened)
        assert datetime.now(UTC) >= opens - timedelta(milliseconds=1)
        assert await votes("briefly", "slow") == ["closed"]
        assert [await boards.shown(board) for board in ("later", "over", "briefly")] == [[("c", 1)], [], [("c", 1)]]


SLIDING = """
[[board]]
id = "hour"
window = { sliding = "1h" }
clock = "event"
ties = "key"
[[board]]
id = "seconds"
types = ["brief"]
window = { sliding = "3s" }
"""


async def test_a_sliding_window_is_exact(valkey_url: str) -> None:
    """An event expires exactly an hour after its time, to the millisecond."""
    chance = random.Random(6)
    sent: list[tuple[float, str, int]] = []
    now = 0.0
    async with stage(valkey_url, SLIDING) as boards, boards.watching("hour") as viewer:
        for _ in range(60):
            now = round(now + chance.choice([0.001, 1, 59.999, 600, 1800, 3600, 3599.999]), 3)
            batch = [(now, f"k{chance.randrange(5)}", chance.randint(-1, 3)) for _ in range(chance.randint(1, 5))]
            if now > 3600:
                batch.append((round(now - 3599.999, 3), "just in time", 1))
                late = {"key": "late", "time": at(round(now - 3600, 3))}
                assert await boards.refused({"key": "now", "amount": 0, "time": at(now)}, late) == ["late"]
            sent += batch
            await boards.accept(*({"key": member, "amount": amount, "time": at(t)} for t, member, amount in batch))
            sums: Counter[str] = Counter()
            for moment, member, amount in sent:
                sums[member] += amount if round((now - moment) * 1000) < 3_600_000 else 0
            right = ranking((member, score) for member, score in sums.items() if score)
            assert await boards.rows("hour") == right
        assert await boards.shown("hour") == right
        await sees(viewer, right)


@pytest.mark.alone
async def test_a_sliding_window_moves_without_readers(valkey_url: str) -> None:
    """On the server's clock, events expire on time, and viewers receive the change."""
    async with stage(valkey_url, SLIDING) as boards, boards.watching("seconds") as viewer:
        posted = time.monotonic()
        await boards.accept({"type": "brief", "key": "a", "amount": 3}, {"type": "brief", "key": "b"})
        assert await boards.shown("seconds") == [("a", 3), ("b", 1)]
        await asyncio.sleep(0.5)
        await boards.accept({"type": "brief", "key": "a"})
        await sees(viewer, [("a", 4), ("b", 1)])
        await sees(viewer, [("a", 1)])
        first = time.monotonic()
        await sees(viewer, [])
        last = time.monotonic()

        assert first - posted >= 2
        assert last - posted >= 2.5
        assert (viewer.rank_count, viewer.total_score, await boards.shown("seconds")) == (0, 0, [])
