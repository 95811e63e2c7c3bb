"""How the entries that a failover lost are chosen and planned again."""

import msgspec
import pytest

from live.domain.board import Board
from live.domain.window import Forever
from live.errors import StoreUnavailableError
from live.journal.log.entries import Head
from live.journal.log.resending import UnsentError, _add, _group_of, _lost, _moderate, _planned_again, _state_of
from live.store.board.state import SCRIPTS, Buckets, Clock
from live.store.board.write.writer import keys_of_buckets
from tests.harness.boards import open_ledger
from tests.harness.mutation import compiled
from tests.harness.plans import HOUR, SERVER

Entries = list[tuple[Head, bytes]]


def entry(kind: str, number: int, body: object = None) -> tuple[Head, bytes]:
    """An entry of the journal, made after nine seconds."""
    return Head(kind, 0, f"{number}-0", 9_000_000, f"link {number}", ""), msgspec.msgpack.encode(body)


def test_the_entries_after_the_last_one_that_both_have_are_lost() -> None:
    """The store may have other entries after the last common entry. Some kinds of entries can't be sent again."""
    known: Entries = [entry("begin", 1), entry("add", 2), entry("hide", 3)]
    for links, last, lost in (
        (["link 1"], "link 1", known[1:]),
        (["link 1", "link 2", "other"], "link 2", known[2:]),
        (["link 1", "other", "link 3"], "link 1", known[1:]),
        (["link 3"], "link 3", []),
    ):
        assert _lost(links, known) == (last, lost)
    with pytest.raises(UnsentError, match="the journal has no entry other like that of the store"):
        _lost(["other entry", "link 1"], known)
    with pytest.raises(UnsentError, match="entry 2-0, of the kind 'forget', can't be sent again"):
        _lost(["link 1"], [known[0], entry("forget", 2)])


async def test_a_batch_is_planned_for_the_present_clock(valkey_url: str) -> None:
    """Slots that have left the window are left out. No limit refuses the batch: the board has counted it before."""
    limits = {"backlog": 1, "most_slots": 1, "held": {}, "most_members": 1, "future": 1}
    events = {"times": [False, 5], "amounts": [1, 2]}
    groups = [{"start": start * HOUR, "keys": 0} for start in (1, 2, 7)]
    body = {
        "reached": 5 * HOUR,
        "groups": groups,
        "events": events,
        "identities": {"counted": 2, "bucket": 1},
        **limits,
    }
    async with open_ledger(valkey_url, SERVER) as ledger:
        state = ledger.state
        state.epoch, state.clock, state.buckets = "e", Clock(6 * HOUR, 6 * HOUR * 1000), Buckets(60, 120)
        keys, packed = _planned_again(state, *entry("add", 1, body))
        sent = msgspec.msgpack.decode(packed)
        assert sent.keys() == {"reached", "groups", "events", "identities", "clock", "most_members", "future"}
        assert (sent["most_members"], sent["future"], sent["reached"]) == (1 << 53, 1 << 53, 6 * HOUR)
        assert [group["start"] for group in sent["groups"]] == [2 * HOUR, 7 * HOUR]
        for group in sent["groups"]:
            assert keys[group["keys"] - 1] == state.keys.slot(group["start"])
        assert sent["events"] == {"times": [9000, 5], "amounts": [1, 2]}
        seen = sent["identities"]
        assert (seen["counted"], seen["bucket"]) == (2, 120)
        end = keys.index(state.keys.slot(2 * HOUR))
        assert (keys[seen["newest"] - 1 : end], seen["oldest"]) == (keys_of_buckets(state), end - 1)
        assert state.clock.newest == 6 * HOUR
        _planned_again(state, *entry("add", 1, {"reached": 8 * HOUR}))
        assert state.clock.newest == 8 * HOUR
        tied = {"start": 7 * HOUR, "suffix": "", "members": ["a", "b"], "amounts": [1, 1], "orders": [-1, -2]}
        mixed = tied | {"times": [5, 5], "arrivals": [2, -3]}
        rules = {"operation": "incr", "order": "backward", "ties": "rising"}
        for clock, group, marks in (
            ({}, tied, {"orders": [-1, -2], "times": [9000, 9000]}),
            ({}, mixed, {"orders": [-1, -3], "times": [5, 9000]}),
            ({"by_event": True}, mixed, {name: mixed[name] for name in ("orders", "times", "arrivals")}),
        ):
            request = {"reached": 0, "groups": [group], "clock": clock, "rules": rules}
            (again,) = msgspec.msgpack.decode(_planned_again(state, *entry("add", 1, request))[1])["groups"]
            assert {name: again[name] for name in ("orders", "times", "arrivals") if name in again} == marks
    kinds = [_group_of(entry(*each)) for each in (("add", 1, body), ("add", 1, {"reached": None}), ("hide", 1))]
    assert kinds == [("add", True), ("add", False), ("hide", False)]


async def test_an_entry_that_the_store_refuses_ends_the_sending(valkey_url: str) -> None:
    """A batch that an earlier attempt sent is skipped, and so are entries that scripts append by themselves.

    A member may already be withdrawn.
    """
    board = Board(id="b", title="b", window=Forever())
    batches = [entry("add", number, {"reached": None}) for number in (1, 2)]
    async with open_ledger(valkey_url, board) as ledger:
        client, settings = ledger.state.client, ledger.state.settings
        await ledger.state.open()
        state = _state_of(client, settings, board, ledger.state.epoch or "", "")
        await state.open()

        async def add(answer: str) -> None:
            script = compiled(valkey_url, SCRIPTS.add.changed(f"return {answer}"))
            state.scripts = msgspec.structs.replace(SCRIPTS, add=script)
            await _add(state, batches)

        await add("{'stale'}")
        await add("{'ok', '1'}")
        with pytest.raises(UnsentError, match="the store answers 'frozen' to entry 1-0"):
            await add("{'frozen'}")
        with pytest.raises(StoreUnavailableError, match="moved 20 times in a row"):
            await add("{'replan', '7', '8', '', '9'}")
        assert (state.clock.newest, state.clock.now, state.buckets.newest) == (7, 8, 9)
        await _moderate(state, *entry("withdraw", 3, {"member": "none"}))
        await _moderate(state, *entry("tags", 3))
        with pytest.raises(UnsentError, match="entry 3-0 has the unknown kind 'new'"):
            await _moderate(state, *entry("new", 3))
