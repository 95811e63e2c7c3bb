"""Boards without a journal are checked against their own slots, and repaired while they are in use."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

import live.maintenance.dump
from live.domain.board import Board
from live.domain.event import make_entry
from live.domain.window import Forever, Periods, Rolling, Sliding
from live.errors import EpochLostError, StoreUnavailableError
from live.maintenance.check import Difference, Report, check_board, replace_store
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.board.pieces import Piece, Place, read_piece
from live.store.connection.client import connect
from live.store.registry.audit_trail import AuditTrail
from tests.harness.boards import built, rolling_board
from tests.harness.commands import run_command
from tests.harness.invariants import drifted
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import define
from tests.harness.settings import as_environment, fresh_settings

HOUR = 3600
BOARD = rolling_board(clock="event")


class Bench:
    """A board without a journal in a store, and a client that corrupts it."""

    def __init__(self, store: str, board: Board = BOARD) -> None:
        self.settings: Settings = fresh_settings(store)
        self.client = connect(store, self.settings)
        self.ledger = Ledger(self.client, board, self.settings)
        self.keys = self.ledger.state.keys
        self.seen: list[tuple[int, int]] = []

    async def like(self, member: str, amount: int = 1, hour: int = 0) -> None:
        """Count a like in the slot of an hour."""
        await self.ledger.writer.add([make_entry(member, amount, hour * HOUR * 1000)])

    async def check(self) -> Report:
        """Check the board."""
        await self.ledger.state.open()
        state = self.ledger.state
        report, _ = await check_board(
            self.client, self.settings, state.board, state.epoch or "", lambda done, of: self.seen.append((done, of))
        )
        assert not report.fault, report
        return report

    async def repair(self) -> None:
        """Make the store hold what the slots say."""
        state = self.ledger.state
        await replace_store(self.client, self.settings, state.board, state.epoch or "", lambda *_: None)

    async def is_repaired(self) -> None:
        """Repair the board. Then it has no drift."""
        await self.repair()
        report = await self.check()
        assert report.clean, report

    async def scores(self) -> dict[str, int]:
        """Return the score of each member of the board."""
        return {record.member: record.score for record in (await self.ledger.reader.read(3000)).records}

    async def do(self, command: str, key: str, *words: str | int | bytes) -> Any:
        """Run a command on a store key of the board, bypassing the scripts."""
        return await self.client.execute_command(command, f"{self.keys.channel}:{key}", *words)


@pytest.fixture
async def bench(any_store: str) -> AsyncIterator[Bench]:
    """A board with three members in two slots."""
    bench = Bench(any_store)
    await define(bench.settings, [BOARD])
    await bench.like("a", 5)
    await bench.like("a", -2, 1)
    await bench.like("b", 1, 1)
    await bench.like("c", -4)
    yield bench
    await bench.client.aclose()


def score(key: str, held: int | None, right: int | None) -> Difference:
    """A score that differs on the board `posts`."""
    return Difference("record", None, key, held, right)


async def test_a_correct_board_is_clean(bench: Bench) -> None:
    """Scores may be negative, and members may be in several slots. The check changes nothing."""
    report = await bench.check()
    assert report.clean
    assert not report.journal
    assert report.compared == {"slot": 4, "hidden": 0, "record": 3, "total": 1}
    assert (await bench.ledger.reader.read(1)).offset == report.offset == 4


async def test_an_empty_board_is_clean(valkey_url: str) -> None:
    """To check a board that does not exist is an error."""
    bench = Bench(valkey_url)
    with pytest.raises(EpochLostError, match="data was lost"):
        await check_board(bench.client, bench.settings, BOARD, "e", lambda *_: None)
    assert (await bench.check()).clean
    await bench.client.aclose()


async def test_a_wrong_score_is_found_and_repaired(bench: Bench) -> None:
    """The ranking gets the sums of the slots again, and viewers receive the change."""
    await bench.do("ZINCRBY", "ranking", 10, "b")
    assert (await bench.check()).drift == [score("b", 11, 1)]
    assert await bench.scores() == {"b": 11, "a": 3, "c": -4}
    await bench.is_repaired()
    assert await bench.scores() == {"a": 3, "b": 1, "c": -4}
    assert (await bench.ledger.reader.read(1)).offset == 5


@pytest.mark.parametrize(
    ("spoil", "drift", "total"),
    [
        ("ZADD ranking 7 ghost", score("ghost", 7, None), 0),
        ("ZADD ranking 0 ghost", score("ghost", 0, None), 0),
        ("ZADD ranking 3.5 a", Difference("record", None, "a", "3.5", 3), 0),
        ("ZREM ranking a", score("a", None, 3), 0),
        ("HSET slot:0 lost 2", score("lost", None, 2), 2),
        ("HDEL slot:0 c", score("c", -4, None), 4),
        ("HSET slot:3600 a 4503599627370496", score("a", 3, 2**52 + 5), 2**52 + 2),
    ],
)
async def test_each_kind_of_drift_is_found_and_repaired(
    bench: Bench, spoil: str, drift: Difference, total: int
) -> None:
    """The drift is a record without slots, slots without a record, a score of 0, or a changed amount in a slot."""
    command, key, *rest = spoil.split()
    await bench.do(command, key, *rest)
    totals = [Difference("total", None, "total", 0, total)] if total else []
    report = await bench.check()
    assert sorted(report.drift, key=lambda found: found.kind) == [drift, *totals]
    await bench.is_repaired()
    assert await drifted(bench.client, bench.keys) == []


@pytest.mark.parametrize(("field", "more"), [("total", 5), ("high", 5 << 40)])
async def test_wrong_totals_are_found_and_repaired(bench: Bench, field: str, more: int) -> None:
    """The page shows a total that is stored in two parts. Each part may be wrong."""
    await bench.do("HINCRBY", "meta", field, 5)
    assert (await bench.check()).drift == [Difference("total", None, "total", more, 0)]
    await bench.is_repaired()
    assert await drifted(bench.client, bench.keys) == []


async def test_an_unlisted_slot_is_found_and_listed_again(bench: Bench) -> None:
    """A slot that is missing in the list of slots counts forever. After a repair, it expires on time."""
    await bench.do("ZREM", "slots", 0)
    assert (await bench.check()).drift == [Difference("listed", 0, "0", None, 0)]
    await bench.is_repaired()
    await bench.like("now", 1, 25)
    while await bench.ledger.rotator.rotate() is None:
        pass
    assert await bench.scores() == {"b": 1, "now": 1, "a": -2}


async def test_a_report_names_only_the_first_differences(bench: Bench) -> None:
    """The report stays short, however many members differ, and still counts all of them."""
    await bench.ledger.writer.add([make_entry(f"k{i}", 1, 0) for i in range(450)])
    for i in range(450):
        await bench.do("ZINCRBY", "ranking", 1, f"k{i}")
    report = await bench.check()
    assert (report.compared["record"], report.drifted, len(report.drift)) == (453, 450, 20)
    await bench.is_repaired()


async def test_progress_is_reported(bench: Bench) -> None:
    """The progress never goes back, and reaches the number of values at the end."""
    await bench.ledger.writer.add([make_entry(f"k{i}", 1, 0) for i in range(450)])
    report = await bench.check()
    assert bench.seen == sorted(bench.seen)
    assert bench.seen[-1] == (sum(report.compared.values()),) * 2


@pytest.mark.parametrize("tries", [3, 0])
async def test_a_board_is_checked_and_repaired_while_in_use(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    """Events and rotation go on. Afterwards every event has counted. With 0 tries, one script reads everything."""
    monkeypatch.setattr(live.maintenance.dump, "_TRIES", tries)
    chance = random.Random(5)
    await bench.ledger.writer.add([make_entry(f"k{i}", 1000 + i % 7, 0) for i in range(600)])
    done = asyncio.Event()

    async def post() -> int:
        added = hour = 0
        while not done.is_set():
            hour += chance.random() < 0.1
            await bench.like(f"k{chance.randrange(600)}", chance.choice([-1, 1, 2]), hour)
            await bench.ledger.rotator.rotate()
            added += 1
        return added

    writing = asyncio.create_task(post())
    try:
        assert (await bench.check()).drift == []
        await bench.do("ZADD", "ranking", 10**9, "ghost")
        assert (await bench.check()).drift == [score("ghost", 10**9, None)]
        await bench.repair()
        assert (await bench.check()).drift == []
    finally:
        done.set()
        assert await writing > 0
    while await bench.ledger.rotator.rotate() is None:
        pass
    assert await drifted(bench.client, bench.keys) == []
    assert (await bench.check()).clean


async def moved_while_read(bench: Bench) -> None:
    """A member is added before each piece of a dump. Everything in the dump is still of one instant."""

    async def interrupted(state: Any, place: Place, **choices: Any) -> Piece:
        await bench.like(f"new {place.kind}")
        return await read_piece(state, place, **choices)

    with replaced(live.maintenance.dump, "read_piece", interrupted):
        assert (await bench.check()).drift == []


async def test_a_board_that_changes_is_read_at_one_instant(valkey_url: str) -> None:
    """After some attempts, one script reads everything."""
    bench = Bench(valkey_url)
    await bench.like("a", 5)
    await moved_while_read(bench)
    await bench.client.aclose()


@pytest.mark.mutant
async def test_a_dump_of_several_instants_is_detected(valkey_url: str) -> None:
    """The mutant does not compare the offsets of the pieces."""
    bench = Bench(valkey_url)
    await bench.like("a", 5)
    module: Any = live.maintenance.dump
    right = module._in_pieces

    async def careless(state: Any) -> Any:
        read = module.read_piece

        async def still(state: Any, place: Place, **choices: Any) -> Piece:
            piece: Piece = await read(state, place, **choices)
            return msgspec.structs.replace(piece, offset=0)

        with replaced(module, "read_piece", still):
            return await right(state)

    with must_be_caught("pieces of several instants"), replaced(live.maintenance.dump, "_in_pieces", careless):
        await moved_while_read(bench)
    await bench.client.aclose()


KINDS = [
    rolling_board(clock="event", board="first", ties="first"),
    rolling_board(clock="event", board="last", ties="last"),
    built(id="dense", title="dense", window=Rolling(86_400, 3600), clock="event", ranks="dense"),
    built(id="sliding", title="sliding", window=Sliding(86_400), clock="event", ranks="dense"),
    built(id="sum", title="sum", window=Periods(unit="day", last=3), clock="event"),
    built(id="hours", title="hours", window=Periods(unit="hour"), clock="event", ties="last"),
    built(id="best", title="best", window=Periods(unit="hour"), clock="event", operator="best", ranks="dense"),
    built(id="set", title="set", window=Forever(), clock="event", operator="set", sort_order="asc", cap=3),
]


@pytest.mark.parametrize("board", KINDS, ids=lambda board: board.id)
async def test_every_kind_of_board_is_checked(valkey_url: str, board: Board) -> None:
    """The board is clean at first. A wrong score and a wrong total are found in each ranking, and repaired."""
    bench = Bench(valkey_url, board)
    for hour, member, amount in ((0, "a", 5), (0, "b", 2), (1, "b", 4), (1, "c", -3), (1, "a", 5), (0, "d", 4)):
        await bench.like(member, amount, hour)
    await bench.ledger.moderation.hide("c", hidden=True)
    whole = await bench.ledger.reader.read(10)
    report = await bench.check()
    assert report.clean, report
    assert report.compared["record"] >= len(whole.records) > 1

    suffix = bench.ledger.state.table(whole.slot).suffix
    first = whole.first
    assert first is not None
    await bench.do("ZINCRBY", f"ranking{suffix}", 7, first[1])
    start = whole.slot if suffix else None
    found = Difference("record", start, whole.records[0].member, first[0] + 7, first[0])
    assert (await bench.check()).drift == [found]
    await bench.is_repaired()
    assert (await bench.ledger.reader.read(10)).records == whole.records

    await bench.do("HINCRBY", "meta", f"total{suffix}", 1)
    total = whole.total_score or 0
    assert (await bench.check()).drift == [Difference("total", start, "total", total + 1, total)]
    await bench.is_repaired()
    if board.ranks == "dense":
        await bench.do("ZADD", f"levels{suffix}", 77, "77")
        await bench.do("ZREM", f"levels{suffix}", first[0])
        drift = (await bench.check()).drift
        assert drift == [
            Difference("level", start, "77", 77, None),
            Difference("level", start, str(first[0]), None, first[0]),
        ]
        await bench.is_repaired()
    assert (await bench.ledger.reader.read(10)).total_score == total
    await bench.client.aclose()


@pytest.mark.parametrize("name", ["first", "hours"])
async def test_a_record_with_another_tag_is_found_and_repaired(valkey_url: str, name: str) -> None:
    """The tag in the name of the record differs from the member's tag, also in the ranking of a period."""
    board = next(board for board in KINDS if board.id == name)
    bench = Bench(valkey_url, board)
    await bench.like("a", 5)
    page = await bench.ledger.reader.read(10)
    suffix = bench.ledger.state.table(page.slot).suffix
    (right,) = await bench.do("ZRANGE", f"ranking{suffix}", 0, -1)
    wrong = bytes(13) + b"\1" + b"a"
    await bench.do("ZADD", f"ranking{suffix}", 5, wrong)
    expected = Difference(
        "record", page.slot if suffix else None, "a", f"5 {wrong[:14].hex()}", f"5 {right[:14].hex()}"
    )
    assert (await bench.check()).drift == [expected], "the member has two records"
    await bench.do("ZREM", f"ranking{suffix}", right)
    assert (await bench.check()).drift == [expected]
    await bench.is_repaired()
    assert (await bench.ledger.reader.read(10)).records == page.records
    await bench.do("HDEL", f"reached{suffix}", "a")
    assert {drift.kind for drift in (await bench.check()).drift} == {"record", "reached"}
    await bench.is_repaired()
    await bench.client.aclose()


async def test_an_event_missing_in_the_log_of_a_sliding_window_is_found(valkey_url: str) -> None:
    """An event that is missing in the log would count forever. A repair takes it out of the sums."""
    bench = Bench(valkey_url, KINDS[3])
    await bench.like("a", 5)
    await bench.like("b", 2)
    await bench.like("b", -2)
    assert (await bench.check()).clean
    await bench.do("ZREMRANGEBYRANK", "log", 0, 0)
    drift = (await bench.check()).drift
    assert Difference("slot", 0, "a", 5, None) in drift
    assert score("a", 5, None) in drift
    await bench.is_repaired()
    assert await bench.scores() == {}
    await bench.client.aclose()


async def test_an_unavailable_store_is_an_error() -> None:
    """A check that can't read the store does not report that the board is clean."""
    bench = Bench("unix:///nowhere/valkey.sock")
    with pytest.raises(StoreUnavailableError):
        await bench.check()
    await bench.client.aclose()


async def check(bench: Bench, *flags: str) -> tuple[int, str]:
    """Run `live check`; returns its exit status and output."""
    words = ("check", "--board", "posts", *flags)
    ended = await asyncio.to_thread(run_command, *words, **as_environment(bench.settings))
    assert ended.stderr == ""
    return ended.returncode, ended.stdout


@pytest.mark.slow
async def test_the_exit_status_tells_whether_there_is_drift(bench: Bench) -> None:
    """The status is 0 without drift. If there is or was drift, it is 1, and the output has the members that differ."""
    epoch = bench.ledger.state.epoch
    right = f"posts (epoch {epoch}): no drift; 8 values compared at offset 4, without a journal\n"
    assert await check(bench) == (0, right)
    await bench.do("ZINCRBY", "ranking", 1000, "a")
    await bench.do("ZADD", "ranking", 1, "[bold]ghost")
    lines = [
        f"posts (epoch {epoch}): DRIFT; 9 values compared at offset 4, without a journal",
        "  2 different values; the first ones are:",
        "  [bold]ghost: score: 1 instead of none",
        "  a: score: 1,003 instead of 3",
    ]
    status, text = await check(bench)
    assert (status, sorted(text.splitlines())) == (1, sorted(lines))
    status, text = await check(bench, "--repair", "journal")
    assert (status, sorted(text.splitlines())) == (1, sorted(lines)), "there is no journal to repair"
    status, text = await check(bench, "--repair", "store")
    repaired = [lines[0].replace("DRIFT", "the store is replaced"), *lines[1:]]
    assert (status, sorted(text.splitlines())) == (0, sorted(repaired))
    begun, ended = reversed(await AuditTrail(bench.client).last(2))
    assert begun.before == ended.before
    assert (await check(bench))[0] == 0


@pytest.mark.slow
async def test_the_command_prints_json(bench: Bench) -> None:
    """The command prints one JSON object with the whole report and with `clean`."""
    await bench.do("ZINCRBY", "ranking", 1, "a")
    status, text = await check(bench, "--json")
    assert status == 1
    drift = {"kind": "record", "start": None, "key": "a", "store": 4, "right": 3}
    assert msgspec.json.decode(text) == {
        "clean": False,
        "boards": [
            {
                "board": "posts", "epoch": bench.ledger.state.epoch, "journal": False, "offset": 4,
                "compared": {"slot": 4, "hidden": 0, "record": 3, "total": 1}, "drifted": 1, "drift": [drift],
                "fault": "", "repaired": False,
            }
        ],
        "unions": {},
    }  # fmt: skip
