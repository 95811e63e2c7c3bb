"""Every way of reading a board gives the same order."""

import random
from typing import get_args

import msgspec
import pytest

from live.domain.board import Board
from live.domain.choices import SortOrder, Ties
from live.domain.ranking import Ranks, Record, position, ranks_of
from tests.harness.boards import open_ledger, rolling_board, select_page
from tests.harness.ledgers import like


async def test_ties_are_ordered_by_the_bytes_of_their_members(any_store: str) -> None:
    """A page may begin or end between members with the same score."""
    keys = ["Z", "a", "b", "z", "é", "你", "😀", "a b", "/x?y=1", "ab"]
    async with open_ledger(any_store, rolling_board()) as ledger:
        await ledger.writer.add([like(member, 7) for member in keys] + [like("top", 9), like("last", 1)])
        expected = ["top", *sorted(keys, key=str.encode), "last"]

        for size in (1, 2, 3, 5, 12, 20):
            walked: list[str] = []
            for start in range(0, 12, size):
                page = await ledger.reader.read(size, start=start)
                walked += [record.member for record in page.records]
                assert [record.rank for record in page.records] == list(range(start + 1, start + 1 + len(page.records)))
            assert walked == expected


async def test_a_walk_by_cursor_neither_skips_nor_repeats(any_store: str) -> None:
    """A walk meets every unchanged record exactly once, while other records appear, disappear and move."""
    chance = random.Random(3)
    async with open_ledger(any_store, rolling_board()) as ledger:
        still = {f"still-{i}": chance.randint(1, 4) for i in range(120)}
        moving = [f"moving-{i}" for i in range(60)]
        await ledger.writer.add([like(member, score) for member, score in still.items()])
        await ledger.writer.add([like(member, chance.randint(1, 4)) for member in moving])

        met: list[Record] = []
        after: tuple[int, bytes] | None = None
        while True:
            reader = ledger.reader
            page = await (reader.read(7) if after is None else select_page(reader, "after", after, 7))
            if not page.records:
                break
            met += page.records
            after = page.last
            await ledger.writer.add([like(chance.choice(moving), chance.choice([-1, 1])) for _ in range(10)])

        walked = [(record.member, record.score) for record in met if record.member in still]
        assert walked == sorted(still.items(), key=lambda item: (-item[1], item[0].encode()))


def all_orders() -> list[Board]:
    """A board for each way in which a ranking is stored and read."""
    return [
        msgspec.structs.replace(rolling_board(), sort_order=order, ties=ties, ranks=ranks)
        for order in get_args(SortOrder)
        for ties in get_args(Ties)
        for ranks in get_args(Ranks)
    ]


def in_order(board: Board, held: dict[str, tuple[int, int]]) -> list[tuple[str, int]]:
    """Members and scores as a board ranks them, given the score of each member and when it reached that score."""
    way = -1 if board.sort_order == "desc" else 1
    late = -1 if board.ties == "last" else 1

    def place(item: tuple[str, tuple[int, int]]) -> tuple[int, int, bytes]:
        member, (score, reached) = item
        return (way * score, 0 if board.ties == "key" else late * reached, member.encode())

    return [(member, score) for member, (score, _) in sorted(held.items(), key=place)]


@pytest.mark.parametrize("board", all_orders(), ids=lambda board: f"{board.sort_order}-{board.ties}-{board.ranks}")
async def test_every_way_of_reading_gives_the_same_order(valkey_url: str, board: Board) -> None:
    """The ways are by rank, by position in both directions, around a member and around a score."""
    chance = random.Random(8)
    held: dict[str, tuple[int, int]] = {}
    async with open_ledger(valkey_url, board) as ledger:
        for batch in range(6):
            likes = [(f"k{chance.randrange(40)}", chance.choice([-1, 1, 1, 2])) for _ in range(15)]
            await ledger.writer.add([like(member, amount) for member, amount in likes])
            for number, (member, amount) in enumerate(likes):
                held[member] = (held.get(member, (0, 0))[0] + amount, batch * 100 + number)
        held = {member: value for member, value in held.items() if value[0]}
        whole = await ledger.reader.read(100)
        rows = [(record.member, record.score) for record in whole.records]
        assert rows == in_order(board, held)
        scores_ = [score for _, score in rows]
        assert [record.rank for record in whole.records] == ranks_of(scores_, 1, 0, board.ranks)
        assert [record.position for record in whole.records] == [
            position(record.rank, place) for place, record in enumerate(whole.records, 1)
        ]

        for size in (1, 3, 7):
            page = await ledger.reader.read(size)
            walked = list(page.records)
            while page.last and (page := await select_page(ledger.reader, "after", page.last, size)).records:
                assert page.start == len(walked)
                walked += page.records
            assert tuple(walked) == whole.records
            back: list[Record] = []
            last = (await ledger.reader.read(1, start=len(rows) - 1)).last
            while last and (page := await select_page(ledger.reader, "before", last, size)).records:
                back = [*page.records, *back]
                last = page.first
            assert tuple(back) == whole.records[:-1]
        for place in range(0, len(rows), 5):
            assert (await ledger.reader.read(4, start=place)).records == whole.records[place : place + 4]
            page_around = await ledger.reader.find(rows[place][0], 2)
            assert page_around is not None
            assert page_around.records == whole.records[max(0, place - 2) : place + 3]
        for score in range(min(scores_) - 1, max(scores_) + 2):
            ahead = sum(1 for other in scores_ if (other > score if board.sort_order == "desc" else other < score))
            page = await select_page(ledger.reader, "score", (score, ""), 4)
            assert page.start == max(0, ahead - 2)
            assert page.records == whole.records[page.start : page.start + 4]


async def test_a_record_is_read_with_its_neighbours(any_store: str) -> None:
    """Each side has the requested number of neighbours, or as many as exist."""
    async with open_ledger(any_store, rolling_board()) as ledger:
        await ledger.writer.add([like("a", 3), like("b", 2), like("c", 2), like("d", 1)])

        middle = await ledger.reader.find("c", 1)
        first = await ledger.reader.find("a", 2)
        assert middle is not None
        assert first is not None
        assert [(r.member, r.rank) for r in middle.records] == [("b", 2), ("c", 3), ("d", 4)]
        assert [(r.member, r.rank) for r in first.records] == [("a", 1), ("b", 2), ("c", 3)]
        assert await ledger.reader.find("x", 1) is None
