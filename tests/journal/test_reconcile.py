"""Store and journal are compared at one instant while both are in use; drift on either side is found and repaired."""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from redis.exceptions import ConnectionError as LostError

import live.journal.reconcile
from live.domain.board import Board, Votes
from live.domain.event import Extra, make_entry
from live.domain.window import Forever, Periods, Rolling, Sliding
from live.journal.cells import has_totals
from live.journal.reconcile import Reconciler, Report
from live.settings import as_environment
from live.store.board.comparison_requests import MendRequest
from live.store.board.mending import MEND, BoardMender, Correction, Value
from live.store.board.pieces import read_piece
from live.store.connection.scripts import Script
from tests.harness.compared import Compared, compared
from tests.harness.mutation import compiled, must_be_caught, mutated, replaced
from tests.harness.waiting import eventually

VOTE: Final = Board(
    id="vote", title="vote", window=Forever(), votes=Votes(per_key=9, registered=True), ties="key", ranks="dense"
)
BOARDS: Final = {
    board.id: board
    for board in (
        Board(id="first", title="first", window=Rolling(86_400, 3600), ties="first"),
        Board(id="key", title="key", window=Rolling(86_400, 3600), ties="key", ranks="dense"),
        Board(id="last", title="last", window=Periods(unit="day", last=3), ties="last"),
        Board(id="days", title="days", window=Periods(unit="day"), ties="last"),
        Board(id="ever", title="ever", window=Forever(), ties="first", sort_order="asc"),
        Board(id="slide", title="slide", window=Sliding(86_400), ties="first"),
        Board(id="best", title="best", window=Forever(), operator="best", cap=3, ties="first"),
        Board(id="set", title="set", window=Periods(unit="day"), operator="set", ties="key"),
        VOTE,
    )
}
SCORES: Final = (("ann", 5), ("bob", 7), ("cat", 2))


async def fill(board: Compared) -> None:
    """Count some events, hide a member, and register some in a contest."""
    moderation = board.ledger.moderation
    if board.board.votes is not None:
        for member in ("ann", "bob", "cat", "dan"):
            await moderation.enter(member, b'{"n":1}')
        for number in range(3):
            extra = Extra(f"voter{number}")
            await board.add(*((member, 1) for member, _ in SCORES[: number + 1]), extra=extra)
    else:
        await board.add(*SCORES)
        await board.add(("ann", 2), ("bob", 1))
    await moderation.hide("cat", hidden=True)


async def slot_of(board: Compared) -> str:
    """The store key of the only slot, without the common prefix."""
    (start,) = await board.do("ZRANGE", "slots", 0, -1)
    return f"slot:{start.decode()}"


async def table_of(board: Compared, name: str) -> str:
    """A store key of the only ranking."""
    slot = await slot_of(board)
    return f"{name}:{slot.partition(':')[2]}" if board.board.window.tables else name


def differences(report: Report) -> set[tuple[str, str, object, object]]:
    """The differences: kind, key, and the values in the store and in the journal."""
    return {(drift.kind, drift.key, drift.store, drift.journal) for drift in report.drift}


@pytest.mark.parametrize("name", BOARDS)
async def test_an_untouched_board_equals_its_journal(valkey_url: str, tmp_path: Path, name: str) -> None:
    """For every kind of board, everything is compared, and nothing changes."""
    async with compared(valkey_url, tmp_path, BOARDS[name]) as board:
        await fill(board)
        before = await board.held()
        for repair in (None, "store", "journal"):
            report = await board.reconcile(repair)
            assert (report.drifted, report.repaired, report.left) == (0, 0, 0), report.drift
            assert report.compared["slot"] == 3
            assert report.compared["hidden"] == 1
        assert await board.held() == before
        kinds = {"slot", "hidden", *MORE.get(name, ()), *(() if board.board.tags == "key" else ("reached",))}
        assert report.compared.keys() == kinds


MORE: Final = {"vote": ("votes", "entrants"), "slide": ("log", "taken"), "best": ("metadata",), "set": ("metadata",)}

Plant = Callable[[Compared], Any]


async def wrong_value(board: Compared) -> None:
    """Change a value in a slot."""
    await board.do("HSET", await slot_of(board), "ann", 50)


async def lost_value(board: Compared) -> None:
    """Remove a member from a slot."""
    await board.do("HDEL", await slot_of(board), "bob")


async def lost_slot(board: Compared) -> None:
    """Remove a whole slot."""
    slot = await slot_of(board)
    await board.do("DEL", slot)
    await board.do("DEL", "slots")


async def ghost(board: Compared) -> None:
    """Add a member without events to a slot."""
    await board.do("HSET", await slot_of(board), "ghost", -4)


async def shown(board: Compared) -> None:
    """Show a hidden member."""
    await board.do("HDEL", "hidden", "cat")


async def concealed(board: Compared) -> None:
    """Hide a member."""
    await board.do("HSET", "hidden", "ann", 1)


async def other_metadata(board: Compared) -> None:
    """Change the metadata of one record, and remove that of another."""
    table = await table_of(board, "metadata")
    await board.do("HSET", table, "ann", '{"team":"y"}')
    await board.do("HDEL", table, "bob")


async def other_entrants(board: Compared) -> None:
    """Remove one contestant, and add another."""
    await board.do("HDEL", "entrants", "dan")
    await board.do("HSET", "entrants", "eve", "{}")


async def other_votes(board: Compared) -> None:
    """Give one voter more votes, and another none."""
    fields = sorted(await board.do("HKEYS", "votes"))
    await board.do("HINCRBY", "votes", fields[0], 3)
    await board.do("HDEL", "votes", fields[1])


async def other_tag(board: Compared) -> None:
    """Change when a member reached its score."""
    table, ranking = await table_of(board, "reached"), await table_of(board, "ranking")
    tag = await board.do("HGET", table, "ann")
    other = tag[:5] + bytes([tag[5] ^ 1]) + tag[6:]
    score = await board.do("ZSCORE", ranking, tag + b"ann")
    await board.do("HSET", table, "ann", other)
    await board.do("ZREM", ranking, tag + b"ann")
    await board.do("ZADD", ranking, score, other + b"ann")


async def lost_event(board: Compared) -> None:
    """Remove an event from the log of a sliding window, and from the sum."""
    event, *_ = await board.do("ZRANGE", "log", 0, -1)
    amount, _, member = event[8:].partition(b" ")
    await board.do("ZREM", "log", event)
    await board.do("HINCRBY", "slot:0", member, -int(amount))


async def new_event(board: Compared) -> None:
    """Add an event that nobody sent to the log of a sliding window."""
    event, time, *_ = await board.do("ZRANGE", "log", 0, 0, "WITHSCORES")
    await board.do("ZADD", "log", int(time) + 1, event[:7] + b"\x77-3 ann")
    await board.do("HINCRBY", "slot:0", "ann", -3)
    await board.do("HINCRBY", "taken", "ann", 3)


DRIFT: Final[dict[str, tuple[Plant, ...]]] = {
    **dict.fromkeys(("first", "last", "days", "ever"), (wrong_value, lost_value, ghost, shown, other_tag)),
    "key": (wrong_value, lost_value, ghost, shown),
    "slide": (lost_event, new_event, shown),
    "best": (lost_value, ghost, shown, other_metadata, other_tag),
    "set": (wrong_value, lost_value, ghost, shown, other_metadata),
    "vote": (wrong_value, lost_value, ghost, shown, other_votes, other_entrants),
}
WHOLE: Final = dict.fromkeys([name for name in BOARDS if name != "slide"], (lost_slot,))
PLANTED: Final = [
    pytest.param(name, plants, id=f"{name}-{len(plants)}") for drift in (DRIFT, WHOLE) for name, plants in drift.items()
]


async def planted(board: Compared, plants: tuple[Plant, ...]) -> None:
    """Plant drift. Afterwards the rankings match the slots, so that only the comparison can find it."""
    for plant in plants:
        await plant(board)
    await board.settle_ranking()


async def test_a_wrongly_hidden_member_returns(valkey_url: str, tmp_path: Path) -> None:
    """It returns to its place among ties."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await fill(board)
        before = await board.held()
        await board.do("HSET", "hidden", "ann", 1)
        report = await board.reconcile("store")
        assert differences(report) == {("hidden", "ann", 1, None)}
        assert await board.held() == before


@pytest.mark.parametrize(("name", "plants"), PLANTED)
async def test_drift_in_the_store_is_repaired_on_either_side(
    valkey_url: str, tmp_path: Path, name: str, plants: tuple[Plant, ...]
) -> None:
    """The journal is corrected first. Then the opposite drift is planted, and the store is corrected."""
    async with compared(valkey_url, tmp_path, BOARDS[name]) as board:
        await fill(board)
        before = await board.held()
        await planted(board, plants)
        drifted = await board.held()
        found = await board.reconcile()
        assert found.drifted == found.left == len(found.drift) > 0
        assert await board.held() == drifted, "a comparison changes nothing"

        report = await board.reconcile("store")
        assert differences(report) == differences(found)
        assert report.left == 0
        assert await board.held() == before
        assert await board.is_sound()
        assert (await board.reconcile()).drifted == 0

        await planted(board, plants)
        drifted = await board.held()
        assert (await board.reconcile("journal")).left == 0
        assert await board.held() == drifted, "the store stays as it is"
        assert (await board.reconcile()).drifted == 0
        if has_totals(board.board):
            slots = (await board.contents()).slots
            sums = {(start, member): value for start, slot in slots.items() for member, value in slot.items()}
            assert await board.hourly_sums() == sums


async def test_a_report_names_the_differences(valkey_url: str, tmp_path: Path) -> None:
    """It has the kind, the slot, the member and both values."""
    async with compared(valkey_url, tmp_path, BOARDS["key"]) as board:
        await fill(board)
        for plant in (wrong_value, lost_value, ghost):
            await plant(board)
        report = await board.reconcile()
        assert differences(report) == {("slot", "ann", 50, 7), ("slot", "bob", None, 8), ("slot", "ghost", -4, None)}
        slot = await slot_of(board)
        assert {f"slot:{drift.start}" for drift in report.drift} == {slot}
        assert (report.epoch, report.offset) == (board.ledger.state.epoch, await board.offset())


@pytest.mark.parametrize("name", [name for name in BOARDS if name != "vote"])
async def test_drift_in_the_journal_is_repaired_on_either_side(valkey_url: str, tmp_path: Path, name: str) -> None:
    """SQL has events of another member."""
    async with compared(valkey_url, tmp_path, BOARDS[name]) as board:
        await fill(board)
        before = await board.held()
        assert (await board.reconcile()).drifted == 0
        await board.spoil(lambda body: body.replace(b"bob", b"bot"))
        report = await board.reconcile()
        assert {key.partition(" ")[0] for _, key, _, _ in differences(report)} == {"bob", "bot"}
        assert (await board.reconcile("journal")).left == 0
        assert await board.held() == before
        assert (await board.reconcile()).drifted == 0

        await board.spoil(lambda body: body.replace(b"cat", b"cow"))
        assert (await board.reconcile("store")).left == 0
        assert (await board.reconcile()).drifted == 0
        assert await board.is_sound()
        assert not any(b"cat" in repr(held).encode() for held in (await board.held()).values())


MANY: Final = [f"m{number}" for number in range(400)]


async def under_load(board: Compared, repair: str, script: Script[Any] = MEND) -> None:
    """Plant drift, and compare and repair it while events arrive. Afterwards every event has counted exactly once."""
    board.mend = script
    chance = random.Random(3)
    scores = dict.fromkeys(MANY, 1000)  # so that none becomes zero
    await board.add(*scores.items())
    slot, done = await slot_of(board), asyncio.Event()

    async def write() -> None:
        while not done.is_set():
            events = {chance.choice(MANY): chance.choice([1, 2, -1]) for _ in range(50)}
            await board.add(*events.items())
            for member, amount in events.items():
                scores[member] += amount

    writing = asyncio.create_task(write())
    try:
        assert (await board.reconcile()).drifted == 0, "nothing differs yet"
        drift = {member: chance.choice([-7, 5]) for member in MANY[::20]}
        for member, amount in drift.items():
            await board.do("HINCRBY", slot, member, amount)
        report = await board.reconcile("store" if repair == "store" else "journal")
        assert {(difference.kind, difference.key) for difference in report.drift} == {("slot", key) for key in drift}
        assert report.left == 0
        assert report.repaired == len(drift), "each once"
    finally:
        done.set()
        await writing
    if repair == "journal":
        for member, amount in drift.items():
            scores[member] += amount
        await board.settle_ranking()
    held = await board.do("HGETALL", slot)
    assert {member.decode(): int(value) for member, value in held.items()} == scores
    assert dict(await board.rows()) == scores
    assert await board.is_sound()
    assert (await board.reconcile()).drifted == 0


@pytest.mark.parametrize("repair", ["store", "journal"])
async def test_drift_is_found_and_repaired_under_load(valkey_url: str, tmp_path: Path, repair: str) -> None:
    """Each piece is compared at its own instant, and a repair is an increment."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await under_load(board, repair)


MOVING: Final = [
    Board(id="hours", title="hours", window=Rolling(6 * 3600, 3600), clock="event", ties="first"),
    Board(id="slide", title="slide", window=Sliding(3 * 3600), clock="event", ties="last"),
    Board(id="each", title="each", window=Periods(unit="hour", keep=2), clock="event", operator="best", cap=5),
]


@pytest.mark.parametrize("moving", MOVING, ids=lambda board: board.id)
async def test_rotation_during_a_comparison_is_not_drift(valkey_url: str, tmp_path: Path, moving: Board) -> None:
    """Events open new slots, old ones are subtracted in steps, and drift is still found."""
    chance = random.Random(4)
    async with compared(valkey_url, tmp_path, moving, rotation_step=7) as board:
        done, calm = asyncio.Event(), asyncio.Event()

        async def write() -> None:
            now = 0
            while not done.is_set():
                now += 0 if calm.is_set() else chance.randrange(500_000)  # milliseconds
                events = [make_entry(chance.choice(MANY[:30]), chance.choice([1, 2, -1]), now) for _ in range(9)]
                await board.ledger.writer.add(events)
                await board.ledger.rotator.rotate()

        writing = asyncio.create_task(write())
        try:
            await eventually(board.offset)
            seen = 0
            for number in range(100):
                report = await board.reconcile()
                assert report.drift == []
                seen += report.compared.get("slot", 0)
                if number >= 4 and seen:  # on a busy machine, slots leave before they are compared
                    break
            assert seen > 0
            calm.set()  # so that the slot stays in the window
            starts = await board.do("ZRANGE", "slots", -1, -1)
            await board.do("HSET", f"slot:{starts[0].decode()}", "ghost", 2**40)
            report = await board.reconcile("store")
            assert {drift.key for drift in report.drift} == {"ghost"}
            assert report.left == 0
        finally:
            done.set()
            await writing
        await board.settle_ranking()
        assert (await board.reconcile()).drifted == 0


async def test_a_comparison_with_two_cut_offs_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The values are from one instant, and the entry of the journal from a later one."""

    async def careless(state: Any, key: str, **choices: Any) -> Any:
        piece = await read_piece(state, key, **choices)
        await asyncio.sleep(0.05)
        later = await read_piece(state, key, **choices)
        return msgspec.structs.replace(piece, link=later.link, offset=later.offset)

    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        with must_be_caught("two cut-offs"), replaced(live.journal.reconcile, "read_piece", careless):
            await under_load(board, "store")


async def test_a_repair_that_overwrites_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """It loses events that were counted since its value was read."""
    source = mutated(MEND.source, {"elseif value ~= seen[i] and": "elseif false and"})

    def overwriting(reconciler: Any, place: Any, drifts: Any) -> Any:
        return msgspec.structs.replace(_correction(reconciler, place, drifts), adds_up=False)

    _correction = Reconciler._correction
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        script = compiled(valkey_url, MEND.changed(source))
        with must_be_caught("HSET instead of increments"), replaced(Reconciler, "_correction", overwriting):
            for _ in range(20):  # until an event comes between the comparison and the repair
                await under_load(board, "store", script)


class Forgetful(Script[MendRequest]):
    """A correction whose first reply is lost."""

    lost = False

    async def __call__(self, *arguments: Any) -> list[Any]:
        """Run the script, and lose the reply."""
        reply = await super().__call__(*arguments)
        if not self.lost:
            self.lost = True
            raise LostError("the reply was lost")
        return reply


async def repaired_once(board: Compared, source: str) -> None:
    """Correct a value by 5, and lose the first reply."""
    await fill(board)
    slot, before = await slot_of(board), await board.offset()
    key = f"{board.ledger.state.keys.channel}:{slot}"
    correction = Correction(
        kind="slot", key=key, start=int(slot.partition(":")[2]), suffix="", adds_up=True, compared=before,
        newest=board.ledger.state.clock.newest, values=[Value(b"ann", b"7", b"12")],
    )  # fmt: skip
    mender = BoardMender(board.ledger.state, Forgetful(MEND.name, MendRequest, source))
    assert await mender.mend(correction, teach=False) == 1
    assert await board.do("HGET", slot, "ann") == b"12"
    assert dict(await board.rows())["ann"] == 12
    assert await board.offset() == before + 1
    other = BoardMender(board.ledger.state, MEND.changed(source))
    assert await other.mend(correction, teach=False) == 0, "it was compared before the first correction"
    assert await board.do("HGET", slot, "ann") == b"12"


async def test_a_repair_whose_reply_is_lost_applies_once(valkey_url: str, tmp_path: Path) -> None:
    """No other command repairs the same drift again."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await repaired_once(board, MEND.source)


@pytest.mark.parametrize(
    ("mistake", "right", "wrong"),
    [
        ("a repair without a number", "if sequence == request.sequence then", "if false then"),
        ("a repair of what another one has repaired", "if writer ~= request.writer and", "if false and"),
    ],
)
async def test_a_repair_that_applies_twice_is_detected(
    valkey_url: str, tmp_path: Path, mistake: str, right: str, wrong: str
) -> None:
    """The retry counts again, and so does the second command."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        source = mutated(MEND.source, {right: wrong})
        with must_be_caught(mistake):
            await repaired_once(board, compiled(valkey_url, MEND.changed(source)).source)


BOARDS_FILE: Final = """
[[board]]
id = "first"
source = ["like"]
window = { rolling = "24h", slot = "1h" }
ties = "first"
"""


async def run_command(board: Compared, *flags: str) -> tuple[int, str, str]:
    """Run `live reconcile` as a process; returns its exit status and its output."""
    boards = board.folder / "boards.toml"
    boards.write_text(BOARDS_FILE, encoding="utf-8")
    environment = {**os.environ, **as_environment(msgspec.structs.replace(board.settings, boards=boards))}
    command = [sys.executable, "-m", "live", "reconcile", *flags]
    ended = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.slow
async def test_the_exit_status_tells_whether_there_is_drift(valkey_url: str, tmp_path: Path) -> None:
    """It is 0 if nothing differs, 1 if something does or did, and 2 for a mistake."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await fill(board)
        await wrong_value(board)
        status, text, _ = await run_command(board, "--board", "first")
        assert status == 1
        assert "ann: value of" in text
        assert text.splitlines()[2].endswith("store 50, journal 7")
        status, text, _ = await run_command(board, "--repair", "--to", "store", "--json")
        found = msgspec.json.decode(text)
        assert (status, found["equal"]) == (1, False)
        (differences,) = found["boards"]
        assert (differences["drifted"], differences["repaired"], differences["left"]) == (1, 1, 0)
        assert differences["drift"][0]["journal"] == 7
        status, text, error = await run_command(board, "--repair")
        assert (status, text) == (2, "")
        assert "--to" in error


@pytest.mark.slow
async def test_without_a_server_the_command_moves_the_journal_itself(valkey_url: str, tmp_path: Path) -> None:
    """The last entries may wait in the store."""
    async with compared(valkey_url, tmp_path, BOARDS["first"]) as board:
        await fill(board)
        assert (await board.reconcile()).drifted == 0
        await board.stop_draining()
        await board.add(("dan", 1))
        status, text, _ = await run_command(board)
        assert (status, text.split(";")[0]) == (0, f"first (epoch {board.ledger.state.epoch}): equal")
        assert await board.waiting() == 0
