"""The audit: it finds every violation of I1, names it, and repairs it while the board is in use."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from unittest.mock import patch

import msgspec
import pytest

from live.domain.board import Board
from live.domain.event import make_entry
from live.domain.window import Forever, Periods, Rolling, Sliding
from live.errors import SetupError, StoreUnavailableError
from live.settings import Settings, as_environment
from live.store.board.audit import Auditor, AuditReport, Drift
from live.store.board.ledger import Ledger
from live.store.connection.client import connect
from live.store.connection.pipelined import Word
from live.store.registry.audit_trail import AuditTrail
from tests.harness.boards import rolling_board
from tests.harness.commands import run_command
from tests.harness.invariants import drifted
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

HOUR = 3600
BOARD = rolling_board(clock="event")


class Bench:
    """A board in a store, a client that corrupts it, and an auditor."""

    def __init__(self, store: str, board: Board = BOARD) -> None:
        self.settings: Settings = fresh_settings(store)
        self.client = connect(store, self.settings)
        self.ledger = Ledger(self.client, board, self.settings)
        self.keys = self.ledger.state.keys
        self.seen: list[tuple[int, int]] = []

    async def like(self, key: str, amount: int = 1, hour: int = 0) -> None:
        """Count a like in the slot of an hour."""
        await self.ledger.writer.add([make_entry(key, amount, hour * HOUR * 1000)])

    async def audit(self, *, repair: bool = False) -> AuditReport:
        """Audit the board."""
        auditor = Auditor(
            self.client,
            self.ledger.state.board.id,
            self.settings.key_prefix,
            lambda done, of: self.seen.append((done, of)),
        )
        return await auditor.audit(repair=repair)

    async def scores(self) -> dict[str, int]:
        """Return the score of each member of the board."""
        return {record.member: record.score for record in (await self.ledger.reader.read(3000)).records}


@pytest.fixture
async def bench(any_store: str) -> AsyncIterator[Bench]:
    """A board with three members in two slots."""
    bench = Bench(any_store)
    await bench.like("a", 5)
    await bench.like("a", -2, 1)
    await bench.like("b", 1, 1)
    await bench.like("c", -4)
    yield bench
    await bench.client.aclose()


async def test_a_correct_board_is_clean(bench: Bench) -> None:
    """Scores may be negative, and members may be in several slots. The audit changes nothing."""
    report = await bench.audit()
    assert report == AuditReport(board="posts", members=3, slots=2)
    assert report.clean
    assert await bench.audit(repair=True) == report
    assert (await bench.ledger.reader.read(1)).offset == 4


async def test_an_empty_board_is_clean(valkey_url: str) -> None:
    """To audit a board that does not exist is an error."""
    bench = Bench(valkey_url)
    with pytest.raises(SetupError, match="no board 'posts'"):
        await bench.audit()
    await bench.ledger.state.open()
    assert (await bench.audit()).clean
    await bench.client.aclose()


async def test_a_wrong_score_is_found_and_repaired(bench: Bench) -> None:
    """The ranking gets the sums of the slots again, and viewers receive the change."""
    await bench.client.zincrby(bench.keys.ranking, 10, "b")
    report = await bench.audit()
    assert (report.drifted, report.drift, report.clean) == (1, [Drift("b", 11, 1)], False)
    assert await bench.scores() == {"b": 11, "a": 3, "c": -4}

    repaired = await bench.audit(repair=True)

    assert (repaired.drift, repaired.repaired) == ([Drift("b", 11, 1)], True)
    assert await bench.scores() == {"a": 3, "b": 1, "c": -4}
    assert (await bench.ledger.reader.read(1)).offset == 5
    assert (await bench.audit()).clean


@pytest.mark.parametrize(
    ("spoil", "drift"),
    [
        ("ZADD ranking 7 ghost", Drift("ghost", 7, 0)),
        ("ZADD ranking 0 ghost", Drift("ghost", 0, 0)),
        ("ZREM ranking a", Drift("a", None, 3)),
        ("HSET slot:0 lost 2", Drift("lost", None, 2)),
        ("HDEL slot:0 c", Drift("c", -4, 0)),
        ("HSET slot:3600 a 4503599627370496", Drift("a", 3, 2**52 + 5)),
    ],
)
async def test_each_kind_of_drift_is_found_and_repaired(bench: Bench, spoil: str, drift: Drift) -> None:
    """The drift is a record without slots, slots without a record, a score of 0, or a changed amount in a slot."""
    command, key, *rest = spoil.split()
    await bench.client.execute_command(command, f"{bench.keys.channel}:{key}", *rest)

    report = await bench.audit(repair=True)

    assert (report.drifted, report.drift) == (1, [drift])
    assert (await bench.audit()).clean
    assert await drifted(bench.client, bench.keys) == []


@pytest.mark.parametrize("field", ["total", "high"])
async def test_wrong_totals_are_found_and_repaired(bench: Bench, field: str) -> None:
    """The page shows a total that is stored in two parts. Each part may be wrong."""
    await bench.client.hincrby(bench.keys.meta, field, 5)
    report = await bench.audit()
    assert (report.totals, report.drifted, report.clean) == ("drift", 0, False)

    assert (await bench.audit(repair=True)).repaired

    assert (await bench.audit()).clean
    assert await drifted(bench.client, bench.keys) == []


async def test_an_unlisted_slot_is_found_and_listed_again(bench: Bench) -> None:
    """A slot that is missing in the list of slots counts forever. After a repair, it expires on time."""
    await bench.client.zrem(bench.keys.slots, 0)
    report = await bench.audit()
    assert (report.stray_slots, report.clean) == ([bench.keys.slot(0)], False)

    await bench.audit(repair=True)

    assert (await bench.audit()).clean
    await bench.like("now", 1, 25)
    while await bench.ledger.rotator.rotate() is None:
        pass
    assert await bench.scores() == {"b": 1, "now": 1, "a": -2}


async def test_a_report_names_only_the_first_drifted_members(bench: Bench) -> None:
    """The report stays short, however many members differ, and still counts all of them."""
    await bench.ledger.writer.add([make_entry(f"k{i}", 1, 0) for i in range(450)])
    for i in range(450):
        await bench.client.zincrby(bench.keys.ranking, 1, f"k{i}")
    report = await bench.audit()
    assert (report.members, report.drifted, len(report.drift)) == (453, 450, 20)
    assert (await bench.audit(repair=True)).drifted == 450
    assert (await bench.audit()).clean


async def test_progress_is_reported(bench: Bench) -> None:
    """The progress never exceeds the number of members, and reaches it at the end."""
    await bench.ledger.writer.add([make_entry(f"k{i}", 1, 0) for i in range(450)])
    await bench.audit()
    assert bench.seen == [(200, 453), (400, 453), (453, 453)]


async def test_a_board_is_repaired_while_in_use(bench: Bench) -> None:
    """Events and rotation do not wait for the audit. Afterwards every event has counted."""
    chance = random.Random(5)
    await bench.ledger.writer.add([make_entry(f"k{i}", 1 + i % 7, 0) for i in range(600)])
    for i in range(0, 600, 3):
        await bench.client.zincrby(bench.keys.ranking, chance.randint(1, 9), f"k{i}")
    done = asyncio.Event()

    async def post() -> int:
        added = hour = 0
        while not done.is_set():
            hour += chance.random() < 0.2
            await bench.like(f"k{chance.randrange(600)}", chance.choice([-1, 1, 2]), hour)
            await bench.ledger.rotator.rotate()
            added += 1
        return added

    writing = asyncio.create_task(post())
    report = await bench.audit(repair=True)
    done.set()
    assert await writing > 0
    assert 0 < report.drifted <= 200
    assert report.totals != "drift"
    while await bench.ledger.rotator.rotate() is None:
        pass
    assert await drifted(bench.client, bench.keys) == []
    assert (await bench.audit()).clean


async def test_totals_of_a_changing_board_are_not_judged(bench: Bench) -> None:
    """A total that was added up while the board changed proves nothing. The report calls it `moving`, and is clean."""
    await bench.ledger.writer.add([make_entry(f"k{i}", 1, 0) for i in range(450)])

    async def like_repeatedly() -> None:
        while True:
            await bench.like("a")

    async def moving() -> bool:
        report = await bench.audit()
        assert report.clean
        return report.totals == "moving"

    liking = asyncio.create_task(like_repeatedly())
    await eventually(moving)
    liking.cancel()
    await asyncio.gather(liking, return_exceptions=True)


async def test_a_new_member_between_two_commands_is_no_drift(bench: Bench) -> None:
    """A member is added between any two commands of the audit."""
    right = Auditor._call
    commands = 0

    async def interrupted(auditor: Auditor, command: str, key: str, *words: Word) -> object:
        nonlocal commands
        reply = await right(auditor, command, key, *words)
        commands += 1
        if commands == place:
            await bench.like(f"new {place}")
        return reply

    with patch.object(Auditor, "_call", interrupted):
        for place in itertools.count(1):
            commands = 0
            assert (await bench.audit()).clean, f"after command {place}"
            if commands < place:
                break
    assert place > 3


KINDS = [
    rolling_board(clock="event", board="first", ties="first"),
    rolling_board(clock="event", board="last", ties="last"),
    Board(id="dense", title="dense", window=Rolling(86_400, 3600), clock="event", ranks="dense"),
    Board(id="sliding", title="sliding", window=Sliding(86_400), clock="event", ranks="dense"),
    Board(id="sum", title="sum", window=Periods(unit="day", last=3), clock="event"),
    Board(id="hours", title="hours", window=Periods(unit="hour"), clock="event", ties="last"),
    Board(id="best", title="best", window=Periods(unit="hour"), clock="event", operator="best", ranks="dense"),
    Board(id="set", title="set", window=Forever(), clock="event", operator="set", sort_order="asc", cap=3),
]


@pytest.mark.parametrize("board", KINDS, ids=lambda board: board.id)
async def test_every_kind_of_board_is_audited(valkey_url: str, board: Board) -> None:
    """The board is clean at first. A wrong score and a wrong total are found in each ranking, and repaired."""
    bench = Bench(valkey_url, board)
    for hour, key, amount in ((0, "a", 5), (0, "b", 2), (1, "b", 4), (1, "c", -3), (1, "a", 5), (0, "d", 4)):
        await bench.like(key, amount, hour)
    whole = await bench.ledger.reader.read(10)
    report = await bench.audit()
    assert (report.clean, report.totals, report.drifted) == (True, "ok", 0)
    assert report.members >= len(whole.records) > 1

    table = bench.ledger.state.table(whole.slot)
    first = whole.first
    assert first is not None
    await bench.client.zincrby(table.ranking, 7, first[1])
    report = await bench.audit()
    assert (report.clean, report.drift) == (False, [Drift(whole.records[0].member, first[0] + 7, first[0])])
    assert (await bench.audit(repair=True)).repaired
    assert (await bench.audit()).clean
    assert (await bench.ledger.reader.read(10)).records == whole.records

    await bench.client.hincrby(bench.keys.meta, f"total{table.suffix}", 1)
    assert (await bench.audit()).totals == "drift"
    assert (await bench.audit(repair=True)).repaired
    assert (await bench.audit()).clean
    assert (await bench.ledger.reader.read(10)).total_score == whole.total_score
    await bench.client.aclose()


async def test_an_event_missing_in_the_log_of_a_sliding_window_is_found(valkey_url: str) -> None:
    """An event that is missing in the log would count forever. The audit reports it."""
    bench = Bench(valkey_url, KINDS[3])
    await bench.like("a", 5)
    await bench.like("b", 2)
    await bench.like("b", -2)
    assert (await bench.audit()).clean
    await bench.client.zremrangebyrank(bench.keys.log, 0, 0)
    report = await bench.audit()
    assert (report.totals, report.drifted, report.clean) == ("drift", 0, False)
    await bench.client.aclose()


async def test_an_unavailable_store_is_an_error() -> None:
    """An audit that can't read the store does not report that the board is clean."""
    bench = Bench("unix:///nowhere/valkey.sock")
    with pytest.raises(StoreUnavailableError):
        await bench.audit()
    await bench.client.aclose()


async def audit(bench: Bench, *flags: str) -> tuple[int, str]:
    """Run `live audit`; returns its exit status and output."""
    words = ("audit", "--board", "posts", *flags)
    ended = await asyncio.to_thread(run_command, *words, **as_environment(bench.settings))
    assert ended.stderr == ""
    return ended.returncode, ended.stdout


@pytest.mark.slow
async def test_the_exit_status_tells_whether_there_is_drift(bench: Bench) -> None:
    """The status is 0 without drift. If there is or was drift, it is 1, and the output has the members that differ."""
    assert await audit(bench) == (0, "posts: no drift; 3 members in 2 slots\n")
    await bench.client.zincrby(bench.keys.ranking, 1000, "a")
    await bench.client.zadd(bench.keys.ranking, {"[bold]ghost": 1})
    lines = [
        "posts: DRIFT; 4 members in 2 slots",
        "  2 wrong scores; the first ones are:",
        "  [bold]ghost: score 1, the slots hold 0",
        "  a: score 1,003, the slots hold 3",
    ]
    status, text = await audit(bench)
    assert (status, sorted(text.splitlines())) == (1, sorted(lines))
    status, text = await audit(bench, "--repair")
    repaired = [lines[0].replace("DRIFT", "repaired"), *lines[1:]]
    assert (status, sorted(text.splitlines())) == (1, sorted(repaired))
    begun, ended = reversed(await AuditTrail(bench.client, bench.settings.key_prefix).last(2))
    assert begun.before == ended.before
    assert (await audit(bench))[0] == 0


@pytest.mark.slow
async def test_drift_that_no_repair_corrects_is_still_reported(valkey_url: str) -> None:
    """The log of a sliding window lacks an event. The ranking and its slot agree, so there is nothing to repair."""
    bench = Bench(valkey_url, Board(id="posts", title="sliding", window=Sliding(86_400), clock="event"))
    await bench.like("a", 5)
    await bench.like("b", 2)
    await bench.client.zremrangebyrank(bench.keys.log, 0, 0)
    for flags in ((), ("--repair",)):
        status, text = await audit(bench, *flags)
        assert (status, text.splitlines()[0]) == (1, "posts: DRIFT; 2 members in 1 slot"), flags
    await bench.client.aclose()


@pytest.mark.slow
async def test_the_command_prints_json(bench: Bench) -> None:
    """The command prints one JSON object with the whole report and with `clean`."""
    await bench.client.zincrby(bench.keys.ranking, 1, "a")
    status, text = await audit(bench, "--json")
    assert status == 1
    assert msgspec.json.decode(text) == {
        "clean": False,
        "boards": [
            {
                "board": "posts", "members": 3, "slots": 2, "drifted": 1,
                "drift": [{"key": "a", "score": 4, "held": 3}], "stray_slots": [], "totals": "ok", "repaired": False,
            }
        ],
        "unions": {},
    }  # fmt: skip
