"""Corrections and moves of scores, while other processes change the scores, and while a server is replaced."""

import pytest

import live.store.board.write.correction
import live.store.board.write.merging
from live.domain.event import make_entry
from live.domain.window import Forever, Sliding
from live.errors import SetupError, StoreUnavailableError
from live.store.board.state import BoardState
from live.store.board.write.correction import Corrected, Correction, changes_of_union, correct
from live.store.board.write.merging import Move, put_move, read_move
from live.store.board.write.writer import BoardWriter
from tests.harness.boards import BOARD, built, open_ledger
from tests.harness.mutation import replaced

FULL = built(id="full", title="full", window=Forever(), max_members=2)


def change(member: str, add: int | None = None, score: int | None = None, time: int | None = None) -> Correction:
    """A correction."""
    return Correction(member=member, reason="fraud", add=add, score=score, time=time)


@pytest.mark.parametrize("window", [Forever(), Sliding(3600)])
async def test_a_correction_adds_to_a_score_or_sets_it(valkey_url: str, window: Forever | Sliding) -> None:
    """The result has the scores before and after. A score of zero has no record. A change by zero is not counted."""
    board = built(id="b", title="b", window=window)
    async with open_ledger(valkey_url, board) as ledger:
        await ledger.writer.add([make_entry("a", 5), make_entry("b", 2), make_entry("c", 1)])
        found = await correct(ledger.writer, [change("a", add=-2), change("b", score=9), change("c", add=-1)])
        assert found == [Corrected(5, 3), Corrected(2, 9), Corrected(1, 0)]
        page = await ledger.reader.read(9)
        assert [(record.member, record.score) for record in page.records] == [("b", 9), ("a", 3)]
        found = await correct(ledger.writer, [change("a", score=3), change("c", add=0), change("d", score=0)])
        assert found == [Corrected(3, 3), Corrected(None, 0), Corrected(None, 0)]
        assert (await ledger.reader.read(9)).offset == page.offset


async def test_a_correction_of_a_best_value_may_lower_it(valkey_url: str) -> None:
    """Zero is a score on such a board. The first score of a member is a change even if it is zero."""
    board = built(id="b", title="b", window=Forever(), operator="best")
    async with open_ledger(valkey_url, board) as ledger:
        await ledger.writer.add([make_entry("a", 5)])
        assert await correct(ledger.writer, [change("a", score=0), change("b", score=0)]) == [
            Corrected(5, 0),
            Corrected(None, 0),
        ]
        assert await correct(ledger.writer, [change("a", add=3), change("c", add=-1)]) == [
            Corrected(0, 3),
            Corrected(None, -1),
        ]
        assert [record.score for record in (await ledger.reader.read(9)).records] == [3, 0, -1]


async def test_a_refused_correction_leaves_the_others(valkey_url: str) -> None:
    """The store names the members that it refuses. The plan refuses a time outside the window."""
    async with open_ledger(valkey_url, FULL) as ledger:
        await ledger.writer.add([make_entry("a", FULL.most), make_entry("b", 1)])
        found = await correct(ledger.writer, [change("a", add=1), change("c", add=1), change("b", add=1)])
        assert found == ["score_out_of_range", "board_full", Corrected(1, 2)]
        assert await correct(ledger.writer, [change("a", add=1)]) == ["score_out_of_range"]
    async with open_ledger(valkey_url, BOARD) as ledger:
        await ledger.writer.add([make_entry("a")])
        now = ledger.state.clock.now
        found = await correct(ledger.writer, [change("a", 1, time=1), change("b", 1, time=now + 10**9), change("c", 1)])
        assert found == ["late", "early", Corrected(None, 1)]


def test_a_union_follows_the_corrections_of_a_part() -> None:
    """The union adds the weighted difference. Without a difference, and after a refusal, there is nothing to add."""
    outcomes: list[Corrected | str] = [Corrected(None, 4), Corrected(5, 3), Corrected(3, 3), Corrected(None, 0), "late"]
    made = changes_of_union([change(member, score=1) for member in "abcde"], outcomes, 10, zeros=False)
    assert made == [change("a", add=40), change("b", add=-20)]


async def test_scores_that_others_change_all_the_time_are_not_changed(valkey_url: str) -> None:
    """Each attempt starts from amounts that the store no longer has.

    After the last attempt, the caller gets an error.
    """

    async def outdated(_state: BoardState, members: list[str]) -> dict[str, dict[int, bytes]]:
        return {member: dict.fromkeys(held[member], b"99") for member in members}

    async with open_ledger(valkey_url, FULL) as ledger:
        await ledger.writer.add([make_entry("a", 5), make_entry("b", 2)])
        held = await live.store.board.write.correction.read_held(ledger.state, ["a", "b"])

        async def make() -> Move:
            move = await read_move(ledger.state, ("a", "b"), "fraud")
            move.held = await outdated(ledger.state, ["a", "b"])
            return move

        with replaced(live.store.board.write.correction, "read_held", outdated):
            with pytest.raises(StoreUnavailableError, match="the scores changed 10 times in a row"):
                await correct(ledger.writer, [change("a", add=1), change("b", add=1)])
            with pytest.raises(StoreUnavailableError, match="the scores changed 100 times in a row"):
                await correct(ledger.writer, [change("a", add=1)])
        with pytest.raises(StoreUnavailableError, match="the scores changed 100 times in a row"):
            await put_move(ledger.writer, make)
        assert [record.score for record in (await ledger.reader.read(9)).records] == [5, 2]


async def test_a_move_that_the_board_refuses_says_why(valkey_url: str) -> None:
    """The sum of two highest scores is out of range, so neither score changes."""
    async with open_ledger(valkey_url, FULL) as ledger:
        await ledger.writer.add([make_entry("a", FULL.most), make_entry("b", FULL.most)])
        with pytest.raises(SetupError, match="score"):
            await put_move(ledger.writer, lambda: read_move(ledger.state, ("a", "b"), "fraud"))
        assert [record.score for record in (await ledger.reader.read(9)).records] == [FULL.most] * 2


async def test_what_another_server_may_lack_has_an_unknown_result(valkey_url: str) -> None:
    """A batch without refusals is sent again under the same number, so it counts once."""
    answers = [False, True, False, False, False]

    async def is_in_sql(_writer: BoardWriter, _offset: int | None) -> bool:
        return answers.pop(0)

    async with open_ledger(valkey_url, BOARD) as ledger:
        with replaced(BoardWriter, "is_in_sql", is_in_sql):
            added = await ledger.writer.add([make_entry("a"), make_entry("b")])
            assert (added.offset, answers) == (1, [False] * 3)
            for work in (
                lambda: ledger.writer.add([make_entry("a"), make_entry("a", 1, 1)]),
                lambda: correct(ledger.writer, [change("a", add=1)]),
                lambda: put_move(ledger.writer, lambda: read_move(ledger.state, ("a", "b"), "fraud")),
            ):
                with pytest.raises(StoreUnavailableError, match="another server took over") as caught:
                    await work()
                assert caught.value.unknown
        assert answers == []
        assert [(record.member, record.score) for record in (await ledger.reader.read(9)).records] == [("b", 4)]
