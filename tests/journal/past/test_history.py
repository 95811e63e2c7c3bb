"""`RunningScores` follows the entries of a journal, and has the scores that the contents of the journal add up to."""

import random
from typing import Any, Final

import msgspec
import pytest

from live.domain.board import Board
from live.domain.board_file import parse_boards
from live.journal.log.entries import Head
from live.journal.past.history import RunningScores, Sums
from live.journal.state.fold import apply
from live.journal.state.ranking import scores_at
from live.journal.state.snapshot import Snapshot
from tests.harness.mutation import must_be_caught, replaced

BEGIN: Final = 1_900_000_800  # seconds; the beginning of an hour
MEMBERS: Final = "abcdefgh"
RANKS: Final = ["ordinal", "dense", "competition"]


def board_of(window: str, ranks: str) -> Board:
    """A board whose slots add up."""
    (board,) = parse_boards(f'[[board]]\nid = "posts"\nwindow = {window}\nranks = "{ranks}"\nties = "first"')
    return board


def batch(board: Board, chance: random.Random, now: int) -> bytes:
    """Make a batch of current and late events."""
    groups = []
    starts = {board.window.slot_at(now - late).start for late in (0, chance.choice([0, 3600, 7200]))}
    for group, start in enumerate(sorted(starts)):
        members = chance.sample(MEMBERS, chance.randint(1, 4))
        groups.append(
            {
                "start": start,
                "suffix": "",
                "members": members,
                "amounts": [chance.choice([1, 1, 2, -1]) for _ in members],
                "orders": [-number for number in range(4 * group + 1, 4 * group + 1 + len(members))],
            }
        )
    rules: dict[str, Any] = {"operation": "incr", "order": "backward", "ties": "falling"}
    reached = board.window.slot_at(now).start
    return msgspec.msgpack.encode({"rules": rules, "span": 3600, "reached": reached, "groups": groups})


def follow_through(board: Board, seed: int) -> None:
    """Apply random batches, and compare the scores and ranks after each batch."""
    chance = random.Random(seed)
    running, data = RunningScores(board), Snapshot()
    now = BEGIN
    for offset in range(1, 60):
        now += chance.choice([1, 600, 3600, 3 * 3600])
        head, body = Head("add", 0, f"{offset}-0", now * 1_000_000, "", ""), batch(board, chance, now)
        apply(data, head, body)
        running.follow(head, body)
        later = now * 1000 + chance.choice([0, 3_600_000])
        now = later // 1000
        hidden = frozenset(chance.sample(MEMBERS, 2))
        found, expected = running.scores(data, later), scores_at(board, data, later)
        assert found.scores == expected.scores, f"seed {seed}"
        places = {member: place for place, member in enumerate(expected.ranked(board, hidden).members, 1)}
        ranks = found.ranks(board, hidden, [*MEMBERS, "nobody"])
        assert ranks == expected.ranks(board, hidden, MEMBERS), f"seed {seed}"
        if board.ranks == "ordinal":
            assert ranks == places, f"seed {seed}"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("window", ['{ rolling = "6h", slot = "1h" }', '"forever"', '{ calendar = "hour", last = 3 }'])
def test_running_scores_match_the_contents(window: str, ranks: str) -> None:
    """Slots leave the window, events are late, amounts cancel out, and members are hidden."""
    for _ in range(5):
        follow_through(board_of(window, ranks), random.SystemRandom().randrange(2**32))


@pytest.mark.mutant
def test_a_slot_that_stays_is_detected() -> None:
    """`follow_through` fails if a slot that has left the window still counts."""
    with must_be_caught("a slot stays"), replaced(Sums, "subtract", lambda *_: None):
        follow_through(board_of('{ rolling = "6h", slot = "1h" }', "ordinal"), 1)
