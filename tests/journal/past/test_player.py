"""A player shows the exact first records at each time, although it looks only at members that have changed."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Connection, update

import live.journal.past.player
from live.boards.players import _Replay
from live.domain.board import Board
from live.domain.board_file import parse_boards
from live.domain.event import make_entry
from live.domain.ranking import Page
from live.fanout.engine.variant import Variant
from live.journal.log.reader import before, contents_of
from live.journal.log.timelines import Timeline
from live.journal.past.player import Player
from live.journal.past.queries import NoPastError
from live.journal.schema import LIFE
from live.journal.state import top
from live.journal.state.ranking import scores_at
from live.journal.state.top import RunningTop
from live.journal.upkeep.checkpoints import due, keep, make
from live.journal.upkeep.retention import forget_entries
from live.store.board.manage.lifecycle import delete_keys
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.timeline import BEGIN, HOUR, HOURS, KINDS, RecordedBoard, board_of, live_through, timeline
from tests.harness.viewer import ModelViewer

SIZE: Final = 3
END: Final = (BEGIN + HOURS * HOUR) * 1000  # milliseconds
STRIDE: Final = 10 * 60 * 1000
OTHERS: Final = {
    "sliding": 'window = { sliding = "3h" }\nties = "first"',
    "sliding on its own clock": 'window = { sliding = "3h" }\nclock = "event"\nties = "last"',
    "best": 'window = "forever"\noperator = "best"\nties = "first"',
    "the last amount": 'window = "forever"\noperator = "set"\nties = "last"\nranks = "dense"',
    "capped": 'window = { calendar = "hour", keep = 2 }\noperator = "best"\ncap = 4',
    "dense": 'window = { rolling = "3h", slot = "1h" }\nranks = "dense"',
    "competition": 'window = { rolling = "3h", slot = "1h" }\nranks = "competition"\nties = "first"',
}


def board_like(kind: str) -> Board:
    """A board of a kind."""
    if kind in KINDS:
        return board_of(kind)
    (board,) = parse_boards(f'[[board]]\nid = "posts"\n{OTHERS[kind]}')
    return board


async def rights_at(line: RecordedBoard, at: int) -> tuple[list[tuple[str, int]], int, int]:
    """Add up all entries until a time.

    Return the first records, the number of all records, and the sum of all scores.
    """

    def work(connection: Connection, timeline: Timeline) -> tuple[list[tuple[str, int]], int, int]:
        data = contents_of(connection, line.settings.key_prefix, timeline, before(at))
        found = scores_at(line.board, data, at).ranked(line.board, {*line.model.hidden, *data.hidden})
        rows = [(member, found.scores[member]) for member in found.members]
        return rows[:SIZE], len(rows), sum(score for _, score in rows)

    found: tuple[list[tuple[str, int]], int, int] = await line.read(work)
    return found


def shown(page: Page) -> tuple[list[tuple[str, int]], int, int]:
    """Return the records of a page, and the number of records and the sum of scores of the whole board."""
    assert page.total_score is not None
    return [(record.member, record.score) for record in page.records], page.rank_count, page.total_score


async def play_through(line: RecordedBoard, at: int, stride: int = STRIDE) -> dict[int, Page]:
    """Play a timeline in small calls, and return each page with its time."""
    running = RunningTop(line.board, frozenset(line.model.hidden), SIZE)
    player = await line.read(lambda sql, _: Player(sql, line.settings.key_prefix, line.board, at, running))
    pages: dict[int, Page] = {}

    def play(connection: Connection, _timeline: Timeline) -> list[tuple[int, Page]]:
        until = min(player.now + 3 * stride, END)
        found: list[tuple[int, Page]] = player.play(connection, until, stride)
        assert player.now <= until
        return found

    while player.now + stride <= END:
        pages.update(await line.read(play))
    return pages


async def messages_are_exact(store: str, folder: Path, kind: str, seed: int) -> None:
    """Apply the messages of a replay as a viewer does, and compare what it shows at each time."""
    async with timeline(store, folder, board_like(kind)) as line:
        await live_through(line, seed)
        line.model.hidden = set()
        running, viewer = RunningTop(line.board, (), SIZE), ModelViewer()
        player = await line.read(
            lambda sql, _: Player(sql, line.settings.key_prefix, line.board, BEGIN * 1000, running)
        )
        replay = _Replay(player, running, line.board, SIZE, 0)
        while player.now + STRIDE <= END:
            pages = await line.read(lambda sql, _: player.play(sql, player.now + STRIDE, STRIDE))
            for message in replay.take(pages, 1.0):
                viewer.receive(message.payload)
            rows = [(record.member, record.score) for record in viewer.records]
            assert (rows, viewer.rank_count, viewer.total_score) == await rights_at(line, player.now), f"seed {seed}"


async def test_a_call_ends_after_a_page_that_took_long(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call has limits for its time and for its number of pages, so that other replays get their turn."""
    monkeypatch.setattr("live.journal.past.player._MOST_PAGES", 2)
    async with timeline(valkey_url, tmp_path, board_like("rolling")) as line:
        await live_through(line, 7)

        def calls(connection: Connection, _timeline: Timeline) -> set[int]:
            running, sizes = RunningTop(line.board, (), SIZE), set()
            player = Player(connection, line.settings.key_prefix, line.board, BEGIN * 1000, running)
            while player.now + STRIDE <= END:
                sizes.add(len(player.play(connection, END, STRIDE)))
            return sizes

        monkeypatch.setattr("live.journal.past.player._SLICE", -1.0)
        assert await line.read(calls) == {0, 1}
        monkeypatch.setattr("live.journal.past.player._SLICE", 60.0)
        assert max(await line.read(calls)) == 2


@pytest.mark.parametrize("kind", ["rolling", "sliding", "calendar", "best"])
async def test_the_messages_of_a_replay_are_exact(valkey_url: str, tmp_path: Path, kind: str) -> None:
    """Messages are exact even when slots and events leave the window without an entry."""
    await messages_are_exact(valkey_url, tmp_path, kind, random.SystemRandom().randrange(2**32))


@pytest.mark.mutant
async def test_records_that_leave_unseen_are_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant still shows records that leave without an entry."""
    with replaced(Variant, "forget", lambda *_: None), must_be_caught("records that have left are still shown"):
        await messages_are_exact(valkey_url, tmp_path, "rolling", 7)


async def is_exact(store: str, folder: Path, kind: str, seed: int) -> None:
    """Compare the page at each time with `rights_at`, which adds up all entries."""
    async with timeline(store, folder, board_like(kind)) as line:
        await live_through(line, seed)
        line.model.hidden = set(random.Random(seed).choice([(), ("e",), ("a", "b")]))
        pages = await play_through(line, BEGIN * 1000)
        assert len(pages) > HOURS // 4
        last: Page | None = None
        for at in range(min(pages), END + 1 - STRIDE, STRIDE):
            last = pages.get(at, last)
            assert last is not None
            assert shown(last) == await rights_at(line, at), f"at {at}, seed {seed}"


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
async def test_a_player_is_exact_at_every_time(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Slots and events leave the window, members are hidden, periods end, and the journal begins again."""
    monkeypatch.setattr(top, "_SPARE", 1)  # the player keeps fewer members than the board has
    monkeypatch.setattr(top, "_MOST_LEFT", 1)
    await is_exact(valkey_url, tmp_path, kind, random.SystemRandom().randrange(2**32))


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("kind", "name", "mutant"),
    [
        ("rolling", "_move", lambda *_: None),
        ("sliding", "_expire", lambda *_: None),
        ("forever", "is_due", lambda running, *_: running._scores is None),
        ("calendar", "is_due", lambda running, *_: bool(running._scores is None or running._changed)),
    ],
)
async def test_what_a_player_forgets_is_detected(
    valkey_url: str, tmp_path: Path, kind: str, name: str, mutant: Callable[..., object]
) -> None:
    """In the mutants, slots or events stay in the window, changes are not shown, or a period never ends."""
    with replaced(RunningTop, name, mutant), must_be_caught(f"{name} on {kind}"):
        await is_exact(valkey_url, tmp_path, kind, 7)


async def falling_behind(line: RecordedBoard) -> None:
    """Let the first members lose most of their scores, so that another member comes first without an event."""
    drainer = await line.drainer()
    await line.count(("a", 6, None), ("b", 5, None), ("c", 4, None), ("d", 2, None))
    await line.go(HOUR)
    await line.count(("a", -5, None), ("b", -4, None), ("c", -3, None))
    await drainer.sweep()
    *_, page = (await play_through(line, BEGIN * 1000)).values()
    assert shown(page)[0][0] == ("d", 2)


async def test_a_member_comes_first_because_others_fall_behind(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The player has not kept the record of the member that comes first."""
    monkeypatch.setattr(top, "_SPARE", 1)
    async with timeline(valkey_url, tmp_path, board_of("forever")) as line:
        await falling_behind(line)


@pytest.mark.mutant
async def test_records_that_stay_ahead_are_detected(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant never looks beyond the records that it has kept."""
    monkeypatch.setattr(top, "_SPARE", 1)
    find = RunningTop._find

    def once(running: RunningTop, *given: Any) -> list[str]:
        found = find(running, *given)
        running._last = None
        return found

    async with timeline(valkey_url, tmp_path, board_of("forever")) as line:
        with replaced(RunningTop, "_find", once), must_be_caught("a record that was not kept never comes back"):
            await falling_behind(line)


async def test_a_player_follows_what_is_hidden(valkey_url: str, tmp_path: Path) -> None:
    """In the pages, the member is hidden exactly between the times at which it was hidden and shown again."""
    async with timeline(valkey_url, tmp_path, board_of("forever")) as line:
        drainer = await line.drainer()
        await line.count(("a", 3, None), ("b", 2, None))
        for hide in (True, False):
            await line.go(HOUR)
            await line.ledger.moderation.hide("a", hidden=hide)
        await line.go(HOUR)
        await drainer.sweep()
        pages = await play_through(line, BEGIN * 1000)
        both = [("a", 3), ("b", 2)]
        assert [shown(page)[0] for page in pages.values() if page.rank_count] == [both, [("b", 2)], both]


async def test_a_player_begins_where_the_journal_begins(valkey_url: str, tmp_path: Path) -> None:
    """To begin at an earlier time is no mistake. A board without entries has no past."""
    async with timeline(valkey_url, tmp_path, board_of("forever")) as line:
        drainer = await line.drainer()
        running = RunningTop(line.board, (), SIZE)
        with pytest.raises(NoPastError):
            await line.databases[0].run(lambda sql: Player(sql, line.settings.key_prefix, line.board, 0, running))
        await line.count(("a", 3, None))
        await drainer.sweep()
        player = await line.read(lambda sql, _: Player(sql, line.settings.key_prefix, line.board, 0, running))
        assert player.now == line.now


async def enters_a_shortened_timeline(line: RecordedBoard) -> None:
    """Let a player go from one timeline to the next, whose first entries are deleted."""
    drainer = await line.drainer()
    await line.count(("a", 3, None))
    await drainer.sweep()
    state = line.ledger.state
    await delete_keys(line.client, state.keys, state.epoch or "")
    line.client.high_water.active = False
    await line.go(HOUR)
    line.ledger = line.another()
    await line.ledger.writer.add([make_entry("b", 5, None, None), make_entry("c", 1, None, None)])
    await drainer.sweep()

    def forget_first(connection: Connection, timeline: Timeline) -> None:
        wanted = due(connection, timeline, 2**60)
        assert wanted is not None
        keep(connection, wanted, *make(connection, line.settings.key_prefix, wanted, 86_400.0))
        assert forget_entries(connection, timeline, 2**60)
        connection.execute(
            update(LIFE).where(LIFE.c.id == timeline.id).values(began=line.now * 1000)
        )  # these times come from the test's clock

    await line.read(forget_first)
    await line.go(HOUR)
    await line.ledger.writer.add([make_entry("c", 2, None, None)])
    await drainer.sweep()
    *_, page = (await play_through(line, BEGIN * 1000)).values()
    assert shown(page)[0] == [("b", 5), ("c", 3)]


async def test_a_player_enters_a_timeline_at_its_checkpoint(valkey_url: str, tmp_path: Path) -> None:
    """The first entries of the timeline no longer exist."""
    async with timeline(valkey_url, tmp_path, board_of("forever")) as line:
        await enters_a_shortened_timeline(line)


@pytest.mark.mutant
async def test_a_player_that_ignores_the_checkpoint_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant shows only what was counted after the checkpoint."""
    async with timeline(valkey_url, tmp_path, board_of("forever")) as line:
        with (
            replaced(live.journal.past.player, "oldest_checkpoint", lambda *_: None),
            must_be_caught("no checkpoint"),
        ):
            await enters_a_shortened_timeline(line)
