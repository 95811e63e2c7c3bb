"""A board with other rules holds what it would hold if it had always had them."""

import random
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

import live.journal.state.conversion
import live.maintenance.swap
import live.maintenance.void
from live.boards.admin import BoardAdmin
from live.domain.board import Board
from live.domain.board_file import make_board
from live.domain.choices import Choices, Votes
from live.domain.event import Entry, Extra, make_entry
from live.domain.packing import Field
from live.domain.window import WindowChoice
from live.errors import SetupError
from live.journal.log.timelines import find_timeline
from live.journal.past.queries import AsOf
from live.journal.past.rankings import ranking_at
from live.maintenance.count import counted, miscounted
from live.maintenance.journal import compact
from live.maintenance.rules import RuleChange, change_rules
from live.store.board.ledger import Ledger
from live.store.board.manage.swap import Beside
from live.store.board.read.reader import PLACE, TAG
from live.store.board.requests import SCRIPTS, Scripts
from live.store.board.rotation import catch_up
from live.store.board.write.correction import Corrected, Correction, correct
from tests.harness.compared import compared
from tests.harness.folded import data_of
from tests.harness.journaled import Journaled, journaled, twin_of
from tests.harness.mutation import compiled, must_be_caught, mutated, replaced
from tests.maintenance.test_set_back import back, moment
from tests.maintenance.test_swap import is_whole
from tests.maintenance.test_void import void

HOUR = 3_600_000
DAY = 24 * HOUR
TIME = 6  # bytes of the time in a tag
NOON = 1_700_000_000_000 // DAY * DAY + 12 * HOUR
WINDOWS: dict[str, Any] = {
    "4h": WindowChoice(rolling="4h", slot="1h"),
    "8h": WindowChoice(rolling="8h", slot="1h"),
    "2h": WindowChoice(rolling="2h", slot="1h"),
    "2h in 2h": WindowChoice(rolling="2h", slot="2h"),
    "8h in 2h": WindowChoice(rolling="8h", slot="2h"),
    "sliding": WindowChoice(sliding="4h"),
    "longer": WindowChoice(sliding="8h"),
    "days": WindowChoice(calendar="day", keep=6),
    "weeks": WindowChoice(calendar="week", keep=3),
    "last": WindowChoice(calendar="day", last=3),
    "ever": "forever",
}
BASE: dict[str, Any] = {"window": "4h", "clock": "event", "ties": "key"}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a longer window": ({"ties": "first"}, {"window": "8h"}),
    "coarser slots": ({"window": "8h"}, {"window": "8h in 2h"}),
    "a longer sliding window": ({"window": "sliding", "ties": "last"}, {"window": "longer"}),
    "sliding": ({"ties": "first"}, {"window": "sliding"}),
    "weeks": ({"window": "days", "ties": "first"}, {"window": "weeks"}),
    "weeks of bests": ({"window": "days", "ties": "first", "operator": "best"}, {"window": "weeks"}),
    "all time": ({"window": "days"}, {"window": "ever"}),
    "the last days": ({"window": "days"}, {"window": "last"}),
    "ties by time": ({}, {"ties": "first"}),
    "the last first": ({"ties": "first", "window": "ever"}, {"ties": "last"}),
    "zeros": ({"ties": "first"}, {"zeros": True}),
    "ascending": ({"ties": "first"}, {"sort_order": "asc"}),
    "the lowest": ({"operator": "best", "ties": "first", "window": "ever"}, {"sort_order": "asc"}),
    "the newest": ({"operator": "best", "ties": "first", "window": "ever"}, {"operator": "set"}),
    "sums": ({"operator": "best", "ties": "first", "window": "days"}, {"operator": "incr"}),
    "dense ranks": ({}, {"ranks": "dense"}),
    "a contest": ({"window": "days", "votes": Votes(per_key=2, registered=False)}, {"window": "weeks"}),
}


def board_of(choices: dict[str, Any]) -> Board:
    """A board with some choices."""
    chosen = BASE | choices
    return make_board(Choices(id="posts", window_choice=WINDOWS[chosen.pop("window")], **chosen))


def random_batches(board: Board, seed: str) -> list[list[Entry]]:
    """Batches of events whose time goes on, and sometimes back a little."""
    dice, now, number = random.Random(seed), NOON, 0
    batches = []
    for _ in range(16):
        batch = []
        for _ in range(dice.randint(1, 8)):
            now += dice.randint(0, HOUR // 2)
            number += 1
            amount = 1 if board.votes else dice.choice([1, 1, 2, 3, 5])
            if board.operator == "incr" and not board.votes and dice.random() < 0.1:
                amount = -1
            extra = Extra(f"v{dice.randint(0, 9)}") if board.votes else None
            if board.operator != "incr":
                extra = Extra(metadata=b'{"n":%d}' % number)
            at = now - dice.choice([0, 0, HOUR])
            batch.append(make_entry(dice.choice("abcdef"), amount, at, None, extra))
        batches.append(batch)
    return batches


async def count(ledger: Ledger, batch: list[Entry]) -> list[Entry]:
    """Count a batch, and return what the board has not refused."""
    refused = (await ledger.writer.add(batch)).refused
    await catch_up(ledger.rotator)
    return [entry for index, entry in enumerate(batch) if index not in refused]


async def rule(board: Journaled, new: Board, *earlier: Board, dry: bool = False) -> RuleChange:
    """Change the rules of a board, as the server does in another process."""
    state = board.ledger.state
    old, epoch = state.board, state.epoch or ""
    state.rules.other, name = new, secrets.token_hex(4)
    return await change_rules(
        board.client, board.settings, board.databases[0], epoch, name, new, [*earlier, old], dry=dry
    )


async def state_of(ledger: Ledger) -> dict[str, object]:
    """What a board holds, apart from identities and numbers of batches."""
    await catch_up(ledger.rotator)
    found: dict[str, Any] = await data_of(ledger.state.client, ledger.state.keys)
    for name, held in found.items():
        match name.partition(":")[0]:
            case "reached":
                found[name] = {member: tag[:TIME] for member, tag in held.items()}
            case "ranking" if ledger.state.board.tags != "key":
                found[name] = sorted((name[:TIME] + name[TAG:], score) for name, score in held)
            case "log":
                found[name] = sorted((name[PLACE:], score) for name, score in held)
    return {name: held for name, held in found.items() if name.partition(":")[0] not in ("seen", "latest")}


async def past_of(board: Journaled, rules: Board, at: int) -> list[tuple[str, int]]:
    """The ranking of a board at a time, from SQL."""
    moment = AsOf(rules, board.ledger.state.epoch or "", at, None, frozenset())
    found = await board.databases[0].run(partial(ranking_at, moment=moment))
    return list(zip(found.members, found.scores, strict=True))


async def same(board: Journaled, twin: Ledger) -> None:
    """Check that both boards hold the same, and SQL too."""
    mine, wanted = await board.ledger.reader.read(99), await twin.reader.read(99)
    assert mine.records == wanted.records
    assert mine.total_score == wanted.total_score
    held, expected = await state_of(board.ledger), await state_of(twin)
    if (board.board.operator, twin.state.board.operator) == ("incr", "best"):
        for name in [name for name in expected if name.startswith("metadata")]:
            held.pop(name, None), expected.pop(name)  # what adds amounts up has no metadata, so the journal has none
    if twin.state.board.votes is not None:  # each board makes digests of voters with its own secret
        for found in (held, expected):
            for name in [name for name in found if name.startswith("votes")]:
                found[name] = sorted(found[name].values())  # type: ignore[attr-defined]
    assert held == expected
    await (await board.drainer()).sweep()
    board.board = twin.state.board
    rows = await board.rows()
    assert await board.rows_in_sql() == rows


@pytest.mark.parametrize("direction", ["there", "back"])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_board_with_other_rules_equals_one_that_always_had_them(
    valkey_url: str, tmp_path: Path, change: str, direction: str
) -> None:
    """Also after the rules are changed back, and for events that come later."""
    one, other = CHANGES[change]
    old, new = board_of(one), board_of(one | other)
    if direction == "back":
        old, new = new, old
    (tmp_path / "always").mkdir()
    async with (
        journaled(valkey_url, tmp_path, old) as board,
        journaled(valkey_url, tmp_path / "always", new) as always,
    ):
        twin, times = always.ledger, list[int]()
        drainers = [await one.drainer() for one in (board, always)]
        for number, batch in enumerate(random_batches(board_of(one), change + direction)):
            if number == 10:
                await rule(board, new)
            await count(twin, await count(board.ledger, batch))
            if number in (5, 12):
                for drainer in drainers:
                    await drainer.sweep()
            times.append(twin.state.clock.latest or 0)
        await same(board, twin)
        await drainers[1].sweep()
        for at in times[7::3]:
            assert await past_of(board, new, at) == await past_of(always, new, at)


async def test_a_sum_of_zero_ends_a_place_by_other_rules(valkey_url: str, tmp_path: Path) -> None:
    """By the old rules, the best amount counts, and no member has lost its record."""
    old, new = (board_of({"window": "ever", "operator": one, "ties": "first"}) for one in ("best", "incr"))
    async with compared(valkey_url, tmp_path, old) as board:
        for member, amount, hours in (("ann", 1, 2), ("ann", -1, 2), ("ann", 5, 0), ("bob", 5, 1)):
            await count(board.ledger, [make_entry(member, amount, NOON + hours * HOUR)])
        await rule(board, new)
        board.board, board.ledger = new, Ledger(board.client, new, board.settings)
        assert await board.rows() == [("ann", 5), ("bob", 5)]
        await is_whole(board)


async def test_a_correction_keeps_its_time_by_other_rules(valkey_url: str, tmp_path: Path) -> None:
    """Where ties went by name, the time of a correction decided nothing."""
    old, new = (board_of({"window": "ever", "clock": "server", "ties": one}) for one in ("key", "first"))
    async with compared(valkey_url, tmp_path, old) as board:
        times = {"ann": NOON + 2 * HOUR, "bob": NOON + HOUR, "cat": None}
        changes = [Correction(member=one, reason="forgotten", add=5, time=at) for one, at in times.items()]
        assert [type(outcome) for outcome in await correct(board.ledger.writer, changes)] == [Corrected] * 3
        await rule(board, new)
        board.board, board.ledger = new, Ledger(board.client, new, board.settings)
        assert await board.rows() == [("bob", 5), ("ann", 5), ("cat", 5)]
        await is_whole(board)


async def test_events_are_taken_back_while_new_rules_wait_for_sql(valkey_url: str, tmp_path: Path) -> None:
    """The drainer has moved neither the new rules nor the first void."""
    async with journaled(valkey_url, tmp_path, board_of({"ties": "first"})) as board:
        await board.drainer()
        for producer in ("ann", "bob", "joe"):
            await board.ledger.writer.add([make_entry(producer, 1, NOON)], [(producer, 1)])
        admin = BoardAdmin(board.client, board.settings)
        await admin.rule("posts", {"ties": "last"}, "chief", None, lambda ruling: rule(board, ruling.new))
        await void(board, producer="ann")
        await void(board, producer="bob")
        assert await board.rows() == [("joe", 1)]


async def test_a_void_does_not_set_the_clock_back_by_other_rules(valkey_url: str, tmp_path: Path) -> None:
    """The newest event opened a slot, and an older slot has left the window. It does not return."""
    async with compared(valkey_url, tmp_path, board_of({"window": "sliding"})) as board:
        for producer, at in (("bob", NOON - HOUR), ("bob", NOON), ("ann", NOON + 4 * HOUR)):
            await board.ledger.writer.add([make_entry(producer, 1, at)], [(producer, 1)])
        admin = BoardAdmin(board.client, board.settings)
        board.board = new = board_of({"window": "4h"})
        window = {"sliding": None, "rolling": "4h", "slot": "1h"}
        await admin.rule("posts", {"window": window}, "chief", None, lambda _: rule(board, new))
        await void(board, producer="ann")
        assert await board.rows() == [("bob", 1)]
        await is_whole(board)


@pytest.mark.parametrize("command", ["void", "recover"])
async def test_other_rules_do_not_set_the_clock_back_after_it(valkey_url: str, tmp_path: Path, command: str) -> None:
    """The event that moved the clock was taken back. A longer window begins at the same time."""
    old, new = board_of({"ties": "first"}), board_of({"window": "8h", "ties": "first"})
    async with compared(valkey_url, tmp_path, old) as board:
        for at in (NOON, NOON + HOUR):
            await board.ledger.writer.add([make_entry("bob", 1, at)], [("bob", 1)])
        since = await moment()
        await board.ledger.writer.add([make_entry("ann", 1, NOON + 9 * HOUR)], [("ann", 1)])
        await (void(board, producer="ann") if command == "void" else back(board, since))
        clock = await board.do("HMGET", "meta", "newest", "latest")
        await rule(board, new)
        board.board, board.ledger = new, Ledger(board.client, new, board.settings)
        assert await board.do("HMGET", "meta", "newest", "latest") == clock
        assert await board.rows() == [("bob", 1)], "only the second event is in the longer window"
        late, counted = (make_entry("cat", 1, at) for at in (NOON, NOON + 2 * HOUR))
        assert (await board.ledger.writer.add([late, counted])).refused == {0: "late"}
        await is_whole(board)


async def void_meets_other_rules(store: str, folder: Path, owner: object, name: str) -> None:
    """Void events. Just before the first call of a function returns or begins, the rules of the board change."""
    old, new = (board_of({"window": "ever", "ties": ties}) for ties in ("first", "last"))
    async with journaled(store, folder, old) as board:
        await board.drainer()
        for number, member in enumerate("abc"):
            await board.ledger.writer.add([make_entry(member, 1, NOON + number)], [(member, 1)])
        admin, right = BoardAdmin(board.client, board.settings), getattr(owner, name)

        async def late(*words: Any) -> Any:
            found = await right(*words) if name == "all_boards" else None
            with patch.object(owner, name, right):
                await admin.rule("posts", {"ties": "last"}, "me", None, lambda ruling: rule(board, ruling.new))
            return found or await right(*words)

        told = ""
        with patch.object(owner, name, late):
            try:
                await void(board, producer="c")
            except SetupError as error:
                told = str(error)
        board.ledger = Ledger(board.client, new, board.settings)
        assert await board.rows() == [("c", 1), ("b", 1), ("a", 1)]
        assert re.search("rules .*have just changed.* run the command again", told)
        board.board = new
        await void(board, producer="c")
        assert await board.rows() == [("b", 1), ("a", 1)]


RACES: dict[str, tuple[object, str]] = {
    "it opens the board": (live.maintenance.void, "all_boards"),
    "it begins the swap": (Beside, "begin"),
}


@pytest.mark.parametrize("before", RACES)
async def test_a_void_is_refused_if_the_rules_change_meanwhile(valkey_url: str, tmp_path: Path, before: str) -> None:
    """It has read the definition with the old rules. The error says what helps."""
    await void_meets_other_rules(valkey_url, tmp_path, *RACES[before])


@pytest.mark.mutant
async def test_a_swap_by_old_rules_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant does not look at the rules of the board once no other swap can change them."""

    async def known(*_: object) -> bool:
        return True

    with (
        must_be_caught("a void writes the contents by the old rules"),
        replaced(live.maintenance.swap, "has_rules_of", known),
    ):
        await void_meets_other_rules(valkey_url, tmp_path, Beside, "begin")


@asynccontextmanager
async def compacted(store: str, folder: Path, old: Board, new: Board) -> AsyncIterator[tuple[Journaled, Ledger]]:
    """A board whose earlier entries were deleted, and a board with other rules that has counted the same."""
    async with journaled(store, folder, old) as board, twin_of(store, new) as twin:
        drainer = await board.drainer()
        for batch in random_batches(old, "compacted"):
            await count(twin, await count(board.ledger, batch))
        await drainer.sweep()
        compact(board.databases[0], [], lambda *_: None)
        yield board, twin


@pytest.mark.parametrize(
    "other",
    [{"window": "2h"}, {"ties": "last"}, {"ties": "key"}, {"ranks": "dense"}, {"window": "2h in 2h"}],
    ids=["shorter", "last", "key", "dense", "coarser"],
)
async def test_a_checkpoint_is_enough_for_some_rules(valkey_url: str, tmp_path: Path, other: dict[str, Any]) -> None:
    """Nothing before it is needed."""
    old = board_of({"ties": "first"})
    new = board_of({"ties": "first"} | other)
    async with compacted(valkey_url, tmp_path, old, new) as (board, twin):
        await rule(board, new)
        await same(board, twin)


async def count_at(board: Journaled, twin: Ledger, hours: int) -> None:
    """Count an event some hours after all events so far."""
    at = (twin.state.clock.latest or 0) + hours * HOUR
    await count(twin, await count(board.ledger, [make_entry("late", 1, at)]))


@pytest.mark.parametrize(
    ("other", "hours"),
    [({"window": "8h"}, 4), ({"ties": "first"}, 6), ({"zeros": True}, 6)],
    ids=["8h", "ties", "zeros"],
)
async def test_rules_that_need_deleted_entries_are_possible_later(
    valkey_url: str, tmp_path: Path, other: dict[str, Any], hours: int
) -> None:
    """The error says from when. Nothing has changed until then."""
    old, new = board_of({}), board_of(other)
    async with compacted(valkey_url, tmp_path, old, new) as (board, twin):
        rows = await board.rows()
        with pytest.raises(SetupError, match=r"events that its journal has deleted: this is possible from 2023-11-1\d"):
            await rule(board, new)
        assert await board.rows() == rows
        await count_at(board, twin, hours)
        await count_at(board, twin, 0)
        await rule(board, new)
        await same(board, twin)


async def test_an_empty_beginning_of_the_journal_may_lack_what_had_left(valkey_url: str, tmp_path: Path) -> None:
    """By the new rules, the event that left a shorter window would count."""
    async with compared(valkey_url, tmp_path, board_of({"window": "sliding"})) as board:
        for producer, at in (("bob", NOON), ("ann", NOON + 9 * HOUR)):
            await board.ledger.writer.add([make_entry(producer, 1, at)], [(producer, 1)])
        await void(board, producer="ann")
        assert await board.rows() == []
        await board.begin_again()
        with pytest.raises(SetupError, match="do not say enough about its events"):
            await rule(board, board_of({"window": "weeks"}))


async def test_all_time_needs_all_entries(valkey_url: str, tmp_path: Path) -> None:
    """No time from which on it is possible is promised."""
    old, new = board_of({}), board_of({"window": "ever"})
    async with compacted(valkey_url, tmp_path, old, new) as (board, twin):
        await count_at(board, twin, 100)
        with pytest.raises(SetupError, match="it needs all of them"):
            await rule(board, new)


@pytest.mark.mutant
async def test_a_checkpoint_that_lacks_slots_is_detected(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant begins with any checkpoint."""
    monkeypatch.setattr(live.journal.state.conversion, "_is_enough", lambda *_: True)
    old, new = board_of({"ties": "first"}), board_of({"ties": "first", "window": "8h"})
    with must_be_caught("the slots that a checkpoint lacks are missing"):
        async with compacted(valkey_url, tmp_path, old, new) as (board, twin):
            await rule(board, new)
            await same(board, twin)


async def plan_by_old_rules(store: str, folder: Path, script: str, scripts: Scripts = SCRIPTS) -> None:
    """Another process does not know the new rules yet when it counts a batch, or rotates."""
    old, new = board_of({"window": "8h", "ties": "first"}), board_of({"window": "8h in 2h", "ties": "first"})
    if script == "rotate":
        old, new = board_of({"ties": "first"}), board_of({"window": "8h", "ties": "first"})
    async with journaled(store, folder, old) as board, twin_of(store, new) as twin:
        await board.drainer()
        batches = random_batches(old, "mutant")
        for batch in batches[:12]:
            await count(twin, await count(board.ledger, batch))
        other = Ledger(board.client, old, board.settings, scripts)
        await other.reader.read(1)
        await rule(board, new)
        other.state.rules.other = new
        if script == "rotate":
            await count_at(board, twin, 3)
            await catch_up(other.rotator)
        else:
            await count(twin, await count(other, batches[12]))
        await same(board, twin)


@pytest.mark.parametrize("script", ["add", "rotate"])
async def test_a_process_takes_the_new_rules_before_it_changes_the_board(
    valkey_url: str, tmp_path: Path, script: str
) -> None:
    """The script refuses the plan by the old rules, and the process makes another one."""
    await plan_by_old_rules(valkey_url, tmp_path, script)


@pytest.mark.mutant
@pytest.mark.parametrize("script", ["add", "rotate"])
async def test_a_plan_by_old_rules_is_detected(valkey_url: str, tmp_path: Path, script: str) -> None:
    """The mutant does not compare the rules: it counts in slots that the board does not have, or drops too many."""
    right = getattr(SCRIPTS, script)
    wrong = mutated(right.source, {"if (request.ruled or false) ~= board.ruled then": "if false then"})
    scripts = msgspec.structs.replace(SCRIPTS, **{script: compiled(valkey_url, right.changed(wrong))})
    with must_be_caught("a plan by old rules changes the board"):
        await plan_by_old_rules(valkey_url, tmp_path, script, scripts)


async def test_deep_checks_leave_out_boards_whose_rules_have_changed(valkey_url: str, tmp_path: Path) -> None:
    """Only the fold knows what earlier entries mean by the new rules."""
    async with journaled(valkey_url, tmp_path, board_of({"operator": "best", "window": "ever"})) as board:
        drainer = await board.drainer()
        await count(board.ledger, [make_entry("a", 5, NOON), make_entry("a", 3, NOON)])
        new = board_of({"window": "ever"})
        await rule(board, new)
        await drainer.sweep()
        state = board.ledger.state
        timeline = await board.databases[0].run(
            lambda connection: find_timeline(connection, "posts", state.epoch or "")
        )
        assert timeline is not None
        data = await board.contents()
        found = await board.databases[0].run(partial(counted, board=new, timeline=timeline, link=data.link))
        assert (found.slots[0]["a"], data.slots[0]["a"]) == (5, 8)
        assert list(miscounted(new, data, found)) == []


@pytest.mark.parametrize("left", [["misses", "points"], ["points"], ["misses"]], ids=str)
@pytest.mark.parametrize("operator", ["best", "incr"])
async def test_fields_of_a_score_get_other_ranges_and_places(
    valkey_url: str, tmp_path: Path, operator: str, left: list[str]
) -> None:
    """The fields of each event that are left are packed again. A value out of its range is refused."""
    points, misses = Field(name="points", high=99), Field(name="misses", sort_order="asc", high=99)
    choices = {"operator": operator, "window": "days" if operator == "best" else "4h", "ties": "first"}
    old = board_of(choices | {"score": (points, misses)})
    wide = msgspec.structs.replace(misses, high=9999)
    score = tuple(field for field in (wide, points) if field.name in left)
    new = board_of(choices | {"score": score, "window": "weeks" if operator == "best" else "8h"})
    narrow = board_of(choices | {"score": (points, msgspec.structs.replace(misses, high=1))})
    assert old.packing is not None
    assert new.packing is not None
    async with journaled(valkey_url, tmp_path, old) as board, twin_of(valkey_url, new) as twin:
        dice = random.Random(operator)
        await board.drainer()
        for number in range(40):
            member, at = dice.choice("abcdef"), NOON + number * HOUR // 5
            values = {"points": dice.randint(0, 9), "misses": dice.randint(0, 9)}
            await count(board.ledger, [make_entry(member, old.packing.pack(values), at)])
            await count(twin, [make_entry(member, new.packing.pack({name: values[name] for name in left}), at)])
        if operator == "best":
            with pytest.raises(SetupError, match="misses"):
                await rule(board, narrow)
            board.ledger.state.rules.other = None
        await rule(board, new)
        await same(board, twin)
