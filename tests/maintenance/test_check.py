"""Drift between store and journal on every kind of board is found and reported, and either side can be replaced."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from live.maintenance.check import Report
from tests.harness.compared import Compared, compared
from tests.harness.drift import BOARDS, fill, slot_of, wrong_value


async def table_of(board: Compared, name: str) -> str:
    """A store key of the only ranking."""
    slot = await slot_of(board)
    return f"{name}:{slot.partition(':')[2]}" if board.board.window.tables else name


def differences(report: Report) -> set[tuple[str, str, object, object]]:
    """The differences: kind, key, and the values in the store and in the journal."""
    return {(drift.kind, drift.key, drift.store, drift.right) for drift in report.drift}


@pytest.mark.parametrize("name", BOARDS)
async def test_an_untouched_board_equals_its_journal(valkey_url: str, tmp_path: Path, name: str) -> None:
    """On every kind of board, the command compares everything and changes nothing."""
    async with compared(valkey_url, tmp_path, BOARDS[name]) as board:
        await fill(board)
        before = await board.held()
        report = await board.check()
        assert report.drifted == 0, report.drift
        assert report.compared["slot"] == 3
        assert report.compared["hidden"] == 1
        assert await board.held() == before
        kinds = {"slot", "hidden", "record", "total", *MORE.get(name, ())}
        kinds |= {"reached"} if board.board.tags != "key" else set()
        assert report.compared.keys() == kinds | ({"level"} if board.board.ranks == "dense" else set())


MORE: Final = {"vote": ("votes", "entrants"), "slide": ("log", "taken"), "best": ("metadata",), "set": ("metadata",)}

Plant = Callable[[Compared], Any]


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


async def other_metadata(board: Compared) -> None:
    """Change the metadata of one record, and remove the metadata of another record."""
    table = await table_of(board, "metadata")
    await board.do("HSET", table, "ann", '{"team":"y"}')
    await board.do("HDEL", table, "bob")


async def other_entrants(board: Compared) -> None:
    """Remove one contestant, and add another."""
    await board.do("HDEL", "entrants", "dan")
    await board.do("HSET", "entrants", "eve", "{}")


async def other_votes(board: Compared) -> None:
    """Give one voter more votes, and remove the votes of another voter."""
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
SAID: Final = {"slot", "log", "hidden", "votes", "entrants"}
WHOLE: Final = dict.fromkeys([name for name in BOARDS if name != "slide"], (lost_slot,))
PLANTED: Final = [
    pytest.param(name, plants, id=f"{name}-{len(plants)}") for drift in (DRIFT, WHOLE) for name, plants in drift.items()
]


async def planted(board: Compared, plants: tuple[Plant, ...]) -> None:
    """Plant drift."""
    for plant in plants:
        await plant(board)


@pytest.mark.parametrize(("name", "plants"), PLANTED)
async def test_drift_in_the_store_is_found(
    valkey_url: str, tmp_path: Path, name: str, plants: tuple[Plant, ...]
) -> None:
    """The comparison changes nothing. The journal can begin again with what the store holds."""
    async with compared(valkey_url, tmp_path, BOARDS[name]) as board:
        await fill(board)
        await planted(board, plants)
        drifted = await board.held()
        found = await board.check()
        assert found.drifted == len(found.drift) > 0
        assert await board.held() == drifted, "the comparison changed the store"
        await board.begin_again()
        assert await board.held() == drifted, "the new beginning changed the store"
        assert not {drift.kind for drift in (await board.check()).drift} & SAID
        await board.replace()
        assert (await board.check()).drift == []
        held = await board.held()
        assert {name: held.get(name) for name in drifted if name.partition(":")[0] in SAID}.items() <= drifted.items()


async def test_a_report_names_the_differences(valkey_url: str, tmp_path: Path) -> None:
    """Each difference has its kind, slot, member and both values."""
    async with compared(valkey_url, tmp_path, BOARDS["key"]) as board:
        await fill(board)
        for plant in (wrong_value, lost_value, ghost):
            await plant(board)
        report = await board.check()
        assert differences(report) == {("slot", "ann", 50, 7), ("slot", "bob", None, 8), ("slot", "ghost", -4, None)}
        slot = await slot_of(board)
        assert {f"slot:{drift.start}" for drift in report.drift} == {slot}
        assert (report.epoch, report.offset) == (board.ledger.state.epoch, await board.offset())


async def test_another_key_of_the_digests_of_voters_is_found(valkey_url: str, tmp_path: Path) -> None:
    """With it, everybody could vote again. The repair writes the key that the journal has."""
    async with compared(valkey_url, tmp_path, BOARDS["vote"]) as board:
        await fill(board)
        await board.is_drained()
        right = await board.do("HGET", "meta", "secret")
        await board.do("HSET", "meta", "secret", right[::-1])
        assert {(drift.kind, drift.key) for drift in (await board.check()).drift} == {("secret", "vote")}
        await board.replace()
        assert await board.do("HGET", "meta", "secret") == right
        assert (await board.check()).drift == []


@pytest.mark.parametrize("name", [name for name in BOARDS if name != "vote"])
async def test_drift_in_the_journal_is_found(valkey_url: str, tmp_path: Path, name: str) -> None:
    """The test renames a member in SQL, so SQL lacks events of one member and has events of another."""
    async with compared(valkey_url, tmp_path, BOARDS[name]) as board:
        await fill(board)
        await board.is_drained()
        assert (await board.check()).drifted == 0
        await board.spoil(lambda body: body.replace(b"bob", b"bot"))
        report = await board.check()
        assert {key.partition(" ")[0] for _, key, _, _ in differences(report)} == {"bob", "bot"}
