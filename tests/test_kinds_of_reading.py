"""Boards from their definition to what people see: unions, scores of several fields, ranks and lookups."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import get_args

import pytest

from live.domain.board_file import parse_boards
from live.domain.choices import Ties
from live.domain.ranking import Ranks, Record
from live.errors import SetupError
from tests.harness.stage import Rows, ranking, rows_of, sees, stage
from tests.harness.waiting import eventually
from tests.test_kinds import at

pytestmark = pytest.mark.slow

CATEGORIES = """
[[board]]
id = "fiction"
types = ["sale"]
category = ["novel", "poem"]
ties = "key"
[[board]]
id = "science"
types = ["sale"]
category = ["physics"]
ties = "key"
[[board]]
id = "books"
union = ["fiction", "science"]
ties = "key"
[[board]]
id = "likes"
types = ["like"]
[[board]]
id = "comments"
types = ["comment"]
[[board]]
id = "reports"
types = ["report"]
[[board]]
id = "heat"
union = ["likes", "comments", "reports"]
weights = [1, 3, -5]
ties = "key"
"""


async def test_a_union_adds_up_its_parts(valkey_url: str) -> None:
    """A union is the weighted sum of its parts, and changes live with the events of its parts."""
    chance = random.Random(7)
    sold: Counter[str] = Counter()
    heat: Counter[str] = Counter()
    weights = {"like": 1, "comment": 3, "report": -5}
    async with (
        stage(valkey_url, CATEGORIES) as boards,
        boards.watching("heat") as hot,
        boards.watching("books") as both,
    ):
        for _ in range(20):
            sales = [(f"b{chance.randrange(8)}", chance.choice(["novel", "poem", "physics"])) for _ in range(9)]
            actions = [
                (f"p{chance.randrange(6)}", chance.choice(list(weights)), chance.randint(-1, 4)) for _ in range(9)
            ]
            await boards.accept(
                *({"key": member, "type": "sale", "category": category} for member, category in sales),
                *({"key": member, "type": kind, "amount": amount} for member, kind, amount in actions),
            )
            sold.update(member for member, _ in sales)
            for member, kind, amount in actions:
                heat[member] += weights[kind] * amount
        books, warm = ranking(sold.items()), ranking((member, score) for member, score in heat.items() if score)
        assert await boards.shown("books") == books
        assert await boards.shown("heat") == warm
        parts = Counter(dict(await boards.shown("fiction"))) + Counter(dict(await boards.shown("science")))
        assert ranking(parts.items()) == books
        await sees(hot, warm)
        await sees(both, books)

        other = {"key": "x", "type": "sale", "category": "cooking"}
        assert await boards.refused(other, {"key": "x", "type": "sale"}) == ["type_unknown", "type_unknown"]
        assert await boards.refused({"key": "x", "board": "heat"}) == ["board_is_union"]
        await boards.accept({"key": "x", "board": "science"})
        assert await boards.shown("books") == ranking([*books, ("x", 1)])


FIELDS = """
[[board]]
id = "race"
operator = "best"
window = "forever"
score = [
    { field = "level", order = "desc", max = 99 },
    { field = "revives", order = "asc", max = 9 },
    { field = "milliseconds", order = "asc", max = MOST },
]
"""


async def test_a_score_can_rank_by_several_fields(valkey_url: str) -> None:
    """The highest level ranks first. Equal levels rank by the fewest revives, and then by the shortest time.

    Answers, pages and messages show a score as these fields.
    """
    chance = random.Random(8)
    best: dict[str, tuple[int, int, int]] = {}
    async with stage(valkey_url, FIELDS.replace("MOST", "86_400_000")) as boards, boards.watching("race") as viewer:
        for _ in range(10):
            runs = [
                (
                    f"k{chance.randrange(40)}",
                    (chance.randrange(90, 100), -chance.randrange(3), -chance.randrange(10**7)),
                )
                for _ in range(20)
            ]
            await boards.accept(*({"key": member, "fields": fields_of(run)} for member, run in runs))
            for member, run in runs:
                best[member] = max(run, best.get(member, run))
        right = [(member, fields_of(best[member])) for member in sorted(best, key=best.__getitem__, reverse=True)]

        page = await boards.page("race")
        assert fielded(page.records) == right
        assert page.total_score is None
        written = [(member, [f"{value:,}" for value in fields.values()]) for member, fields in right]
        assert [(member, numbers) for member, _, numbers in await boards.html("race")] == written
        assert fielded((await boards.frame("race", page.offset)).records) == right

        async def seen() -> bool:
            return fielded(viewer.records) == right

        await eventually(seen)
        member, fields = right[3]
        record = await boards.record("race", member, around=1)
        assert (record.rank, record.fields, fielded(record.records)) == (4, fields, right[2:5])
        assert (await boards.records("race", member)).records[0].fields == fields
        assert (await boards.member_records(member)).records[0].fields == fields
        over = {"key": member, "fields": fields_of((100, 0, 0))}
        assert await boards.refused(over, {"key": member}) == ["fields_invalid", "fields_invalid"]


def fields_of(run: tuple[int, int, int]) -> dict[str, int]:
    """The posted fields of a run."""
    level, revives, milliseconds = run
    return {"level": level, "revives": -revives, "milliseconds": -milliseconds}


def fielded(records: Iterable[Record]) -> list[tuple[str, object]]:
    """Each member with the fields of its score."""
    return [(record.member, record.fields) for record in records]


def test_fields_that_do_not_fit_into_a_score_are_refused() -> None:
    """The message shows how many different scores the fields have, as a product, and how many are possible."""
    with pytest.raises(SetupError, match=r"100 × 10 × 10000000000001 = 10000000000001000") as caught:  # noqa: RUF001
        parse_boards(FIELDS.replace("MOST", "10_000_000_000_000"))
    assert "more than the 2^53 = 9007199254740992" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("ties", get_args(Ties))
@pytest.mark.parametrize("ranks", get_args(Ranks))
async def test_pages_match_under_each_rule_of_ties_and_ranks(valkey_url: str, ties: Ties, ranks: Ranks) -> None:
    """For each tie rule and kind of ranks, pages in both directions have the right records, also while slots expire."""
    chance = random.Random(9)
    choices = f'clock = "event"\nties = "{ties}"\nranks = "{ranks}"\nwindow = {{ rolling = "3h", slot = "1h" }}\n'
    sent: list[tuple[int, str]] = []
    now = 0
    async with stage(valkey_url, f'[[board]]\nid = "posts"\n{choices}') as boards:
        async with boards.watching("posts") as viewer:
            for _ in range(12):
                now += chance.choice([600, 1800, 3600])
                batch = [(now, f"k{chance.randrange(12):02}") for _ in range(chance.randint(2, 9))]
                sent += batch
                await boards.accept(*({"key": member, "time": at(moment)} for moment, member in batch))
                right = ranked(tied(sent, now, ties), ranks)
                pages = await boards.walk("posts", 3)
                assert [triple(record) for page in pages for record in page.records] == right
                back = await boards.walk_back("posts", 3, pages[-1])
                assert [triple(record) for page in reversed(back) for record in page.records] == right
            assert await boards.shown("posts") == [(member, score) for member, score, _ in right]

            async def seen() -> bool:
                return [triple(record) for record in viewer.records] == right

            await eventually(seen)
        for member, score, rank in right:
            record = await boards.record("posts", member)
            assert (record.member, record.score, record.rank) == (member, score, rank)


def tied(sent: list[tuple[int, str]], now: int, ties: Ties) -> Rows:
    """The expected rows of a three-hour window.

    The rules `first` and `last` order equal scores by the latest event of each member, and `key` orders them by name.
    """
    counts = Counter(member for moment, member in sent if moment // 3600 >= now // 3600 - 3)
    latest = {
        member: (moment, number)
        for moment, number, member in sorted((at, place, member) for place, (at, member) in enumerate(sent))
    }
    rows = sorted(counts.items())
    if ties != "key":
        rows.sort(key=lambda item: latest[item[0]], reverse=ties == "last")
    return sorted(rows, key=lambda item: -item[1])


def ranked(rows: Rows, ranks: Ranks) -> list[tuple[str, int, int]]:
    """Each row with its rank, computed from the scores of all rows."""
    scores = [score for _, score in rows]
    dense = {score: rank for rank, score in enumerate(sorted(set(scores), reverse=True), 1)}
    return [
        (
            member,
            score,
            {"ordinal": place, "competition": scores.index(score) + 1, "dense": dense[score]}[ranks],
        )
        for place, (member, score) in enumerate(rows, 1)
    ]


def triple(record: Record) -> tuple[str, int, int]:
    """The member, the score and the rank of a record."""
    return record.member, record.score, record.rank


PLACES = '[[board]]\nid = "week"\nties = "key"\n[[board]]\nid = "ever"\nwindow = "forever"\nties = "key"\n'


@pytest.mark.slow
async def test_the_place_of_a_member_can_be_read(valkey_url: str) -> None:
    """The API gives a member's neighbours, percentile and boards.

    It also gives several members at once, and the page around a score.
    """
    # Members 0 and 1 have the same score, members 2 and 3 have the next lower score, and so on.
    scores = {f"k{number:03}": 1000 - 10 * (number // 2) for number in range(100)}
    rows = ranking(scores.items())
    async with stage(valkey_url, PLACES) as boards:
        await boards.accept(*({"key": member, "amount": score} for member, score in scores.items()))
        await boards.accept({"key": "k042", "board": "ever", "amount": 5000})
        assert await boards.shown("week") == rows[:50]
        for place in (0, 1, 5, 50, 98, 99):
            member, score = rows[place]
            record = await boards.record("week", member, around=3)
            assert (record.rank, record.score) == (place + 1, score)
            assert [(near.member, near.score) for near in record.records] == rows[max(0, place - 3) : place + 4]
            assert record.gap == (rows[place - 1][1] - score if place else None)
            assert record.percentile == round(100 * (99 - place) / 99, 2)

        several = await boards.records("week", "k099", "nobody", "k000", "k042")
        assert [(record.member, record.rank) for record in several.records] == [
            ("k099", 100),
            ("k000", 1),
            ("k042", 43),
        ]
        member_records = await boards.member_records("k042")
        places = {record.board: (record.score, record.rank) for record in member_records.records}
        assert places == {"week": (790, 43), "ever": (5790, 1)}
        for score, first in ((790, 42), (795, 42), (10**9, 0), (-5, 100)):
            around = await boards.page("week", score=score, limit=6)
            assert rows_of(around) == rows[max(0, first - 3) : max(0, first - 3) + 6]
        async with boards.watching("week") as viewer:
            await boards.accept({"key": "k099", "board": "week", "amount": 10_000})
            assert (await boards.record("week", "k099")).percentile == 100
            await sees(viewer, [("k099", scores["k099"] + 10_000), *rows[:49]])
