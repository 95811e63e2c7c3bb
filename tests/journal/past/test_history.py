"""`RunningScores` follows the entries of a journal, and has the scores that the contents of the journal add up to."""

import random
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pytest
from sqlalchemy import Connection

from live.domain.board import Board
from live.domain.board_file import parse_boards
from live.domain.event import make_entry
from live.journal.log.entries import Head
from live.journal.past.history import RunningScores, Sums, scores_at_all
from live.journal.state.fold import apply
from live.journal.state.ranking import Scores, scores_at
from live.journal.state.snapshot import Snapshot
from live.store.board.write.merging import put_move, read_move
from tests.harness.journaled import journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.maintenance.test_rules import HOUR, NOON, count, rule
from tests.maintenance.test_rules import board_of as rules_of

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
    reached = board.window.slot_at(now).start
    return msgspec.msgpack.encode({"rules": board.rules, "span": 3600, "reached": reached, "groups": groups})


def follow_through(board: Board, seed: int) -> None:
    """Apply random batches, and compare the scores and ranks after each batch."""
    chance = random.Random(seed)
    running, data = RunningScores(board), Snapshot()
    now = BEGIN
    for offset in range(1, 60):
        now += chance.choice([1, 600, 3600, 3 * 3600])
        head, body = Head("add", 0, f"{offset}-0", now * 1_000_000, "", ""), batch(board, chance, now)
        running.follow(head, apply(data, head, body))
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


async def test_a_history_counts_what_a_merge_moves_by_other_rules(valkey_url: str, tmp_path: Path) -> None:
    """When the store moved the amounts of a slot, another one had left the shorter window."""
    old, new = rules_of({}), rules_of({"window": "8h"})
    async with journaled(valkey_url, tmp_path, old) as made:
        drainer, later = await made.drainer(), NOON + 5 * HOUR
        await count(made.ledger, [make_entry("a", 5, NOON)])
        await count(made.ledger, [make_entry("a", 2, later), make_entry("b", 1, later)])
        await put_move(made.ledger.writer, partial(read_move, made.ledger.state, ("a", "b"), "why"))
        await count(made.ledger, [make_entry("c", 1, later + HOUR)])
        await rule(made, new)
        await drainer.sweep()
        times, epoch = [NOON + 1, later + 1, later + HOUR + 1], made.ledger.state.epoch

        def read(connection: Connection) -> list[dict[str, int]]:
            return [dict(scores.scores) for _, scores in scores_at_all(connection, new, epoch, times)]

        assert await made.databases[0].run(read) == [{"a": 5}, {"b": 8}, {"b": 8, "c": 1}]


def test_members_without_a_tag_have_the_same_places_in_ranks_and_in_a_ranking() -> None:
    """When a slot has left the window, the entry with their tags comes a moment later."""
    board = board_of('{ rolling = "6h", slot = "1h" }', "ordinal")
    found = Scores(None, {"b": 1, "c": 2, "a": 1}, {})
    assert found.ranked(board, ()).members == ["c", "a", "b"]
    assert found.ranks(board, (), "abc") == {"c": 1, "a": 2, "b": 3}


@pytest.mark.mutant
def test_a_slot_that_stays_is_detected() -> None:
    """`follow_through` fails if a slot that has left the window still counts."""
    with must_be_caught("a slot stays"), replaced(Sums, "subtract", lambda *_: None):
        follow_through(board_of('{ rolling = "6h", slot = "1h" }', "ordinal"), 1)
