"""Finding a member, or the digests of an actor, in a board of the store, and deleting them."""

from typing import Any

import msgspec
import pytest

from live.domain.choices import Votes
from live.domain.event import Extra, make_entry
from live.domain.window import Forever, Periods, Sliding
from live.store.board.journal_stream import read_entries
from live.store.board.manage.erasure import (
    erase_digests,
    find_digests,
    forget_member,
    knows_member,
    members_of,
    read_held,
)
from live.store.board.write.slot_assignment import voter_digests
from live.store.connection.client import required
from live.store.connection.pipelined import Word
from tests.harness.boards import BOARD, built, open_ledger


async def test_a_member_is_known_wherever_a_board_has_it(valkey_url: str) -> None:
    """A sliding window also has events of members whose amounts add up to zero. A hidden member may have no event."""
    board = built(id="hot", title="hot", window=Sliding(3600))
    async with open_ledger(valkey_url, board) as ledger:
        client, keys = ledger.state.client, ledger.state.keys
        assert not await forget_member(client, board, keys, "a b", [], b""), (
            "a member was found on a board that does not exist"
        )
        await ledger.writer.add([make_entry("a b")])
        for amount in (2, -2):
            await ledger.writer.add([make_entry("zero c", amount)])
        await ledger.moderation.hide("hidden", hidden=True)
        for member in ("a b", "zero c", "hidden"):
            assert await knows_member(client, keys, board, member), member
            assert await forget_member(client, board, keys, member, [], b"")
            assert not await knows_member(client, keys, board, member), member
        await ledger.writer.add([make_entry("d")])
        assert not await knows_member(client, keys, board, "none")
        assert await ledger.baseline.keep() is not None


async def test_a_member_is_deleted_from_all_marks(valkey_url: str) -> None:
    """The first members of a mark are there with their names, and the others with a digest."""
    async with open_ledger(valkey_url, BOARD) as ledger:
        client, keys, board = ledger.state.client, ledger.state.keys, ledger.state.board
        await ledger.writer.add([make_entry(f"m{number:04}", 2000 - number) for number in range(1500)])
        await ledger.baseline.keep()
        for member in ("m0003", "m1200", "m1201"):
            assert await forget_member(client, board, keys, member, [], b"\x80")
        found = await ledger.baseline.read()
        assert found is not None
        wanted = [(0, 1), (4, 4), (1199, 1199), (1202, 1202), (3, None), (1200, None), (1201, None)]
        assert [(number, found.rank_of(f"m{number:04}", 0)) for number, _ in wanted] == wanted
        assert b"m0003" not in b"".join(await client.call(keys.meta, "HGETALL", keys.baseline))


@pytest.mark.parametrize("cap", [None, 2])
async def test_the_journal_of_a_board_with_a_cap_begins_again_without_the_member(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch, cap: int | None
) -> None:
    """The journal can't say which records the cap left out, so it continues with the contents of the store.

    A second notice wakes the drainer, which may have handled the first notice before the journal began again.
    """
    board = msgspec.structs.replace(BOARD, cap=cap)
    async with open_ledger(valkey_url, board, journal="sqlite") as ledger:
        await ledger.writer.add([make_entry(member) for member in "abc"])
        client, keys, epoch = ledger.state.client, ledger.state.keys, ledger.state.epoch or ""
        call, notices = client.call, list[Word]()

        async def noting(key: str, *words: Word) -> Any:
            if words[:2] == ("SPUBLISH", keys.channel):
                notices.append(words[2])
            return await call(key, *words)

        monkeypatch.setattr(client, "call", noting)
        assert await forget_member(client, board, keys, "b", [], b"\x80")
        (entries,) = required(await read_entries(client, [(keys, epoch, "0-0")]))
        kinds = [entry.head.partition(" ")[0] for entry in entries]
        assert kinds[kinds.index("forget") :] == (["forget"] if cap is None else ["forget", "adopt"])
        assert notices == ([] if cap is None else [f"{epoch}:2"])


@pytest.mark.parametrize("window", [Forever(), Periods(unit="hour", keep=3)])
async def test_digests_are_deleted_from_votes_and_identities(valkey_url: str, window: Forever | Periods) -> None:
    """The journal has an entry about the deletion. A board that was created again meanwhile keeps its data."""
    board = built(id="vote", title="vote", window=window, clock="event", votes=Votes(per_key=9))
    ids = [bytes([number]) * 16 for number in range(3)]
    async with open_ledger(valkey_url, board, journal="sqlite") as ledger:
        client, keys = ledger.state.client, ledger.state.keys
        assert await read_held(client, keys) is None, "digests were read from a board that does not exist"
        for hour, (actor, identity) in enumerate(zip(("me", "you", "me"), ids, strict=True)):
            await ledger.writer.add([make_entry("a b", 1, hour * 3_600_000, identity, Extra(actor))])
        held = await read_held(client, keys)
        assert held is not None
        starts = [board.window.slot_at(hour * 3600).start for hour in range(3)]
        assert held.epoch == ledger.state.epoch
        assert (held.starts, held.shape, held.journaled) == (sorted(set(starts)), board.shape, True)
        assert await members_of(client, keys, starts[0]) == ["a b"]
        voters = {digest for actor in ("me", "you") for digest in voter_digests(held.secret, actor, "a b")}
        assert await find_digests(client, keys, held, set) == {*ids, *voters}
        mine = {*voter_digests(held.secret, "me", "a b"), ids[0], ids[2]}
        assert await find_digests(client, keys, held, lambda fields: mine & set(fields)) == mine
        outdated = msgspec.structs.replace(held, epoch="0badbad0")
        assert not await erase_digests(client, keys, outdated, mine, b"\x80")
        assert await find_digests(client, keys, held, set) == {*ids, *voters}
        assert await erase_digests(client, keys, held, mine, b"\x80")
        assert await find_digests(client, keys, held, set) == {*ids, *voters} - mine
        (entries,) = required(await read_entries(client, [(keys, held.epoch, "0-0")]))
        assert entries[-1].head.partition(" ")[0] == "erase"
