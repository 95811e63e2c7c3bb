"""The store registers, withdraws and hides members."""

from pathlib import Path

import pytest

from live.boards.definitions import read_board
from live.domain.event import Extra, make_entry
from live.errors import EpochLostError, ProblemError
from live.store.board.ledger import Ledger
from tests.harness.boards import open_ledger


async def refusal(ledger: Ledger, member: str) -> str:
    """Withdraw a member. Return the code of the refusal."""
    with pytest.raises(ProblemError) as refused:
        await ledger.moderation.withdraw(member)
    return refused.value.code


async def offset_is_known(ledger: Ledger) -> bool:
    """Whether the server remembers that it has acknowledged the present offset."""
    return ledger.state.known == int(await ledger.state.call("HGET", ledger.state.keys.meta, "offset"))


async def test_a_member_is_registered_until_it_is_withdrawn(valkey_url: str, tmp_path: Path) -> None:
    """A member with a vote can't be withdrawn. At most `max_members` members can be registered.

    Each change is acknowledged: the server notices if the store loses it.
    """
    board = read_board("vote", {"window": "forever", "votes": {"registered": True}, "max_members": 2})
    async with open_ledger(valkey_url, board, data_dir=tmp_path) as ledger:
        ledger.state.client.high_water.active = True
        for member, is_new in (("ann", True), ("bob", True), ("ann", False)):
            assert await ledger.moderation.enter(member, b"{}") is is_new
            assert await offset_is_known(ledger)
        with pytest.raises(ProblemError) as refused:
            await ledger.moderation.enter("cy", b"{}")
        assert refused.value.code == "too_many_members"
        await ledger.writer.add([make_entry("ann", 1, None, None, Extra("me"))])
        assert [await refusal(ledger, member) for member in ("ann", "cy")] == ["record_voted", "record_not_found"]
        await ledger.moderation.withdraw("bob")
        assert await offset_is_known(ledger)
        assert await ledger.moderation.metadata("bob") is None
        assert bytes(await ledger.moderation.metadata("ann") or b"") == b"{}"
        for hidden in (True, False):
            await ledger.moderation.hide("ann", hidden=hidden)
            assert await ledger.moderation.is_hidden("ann") is hidden
            assert await offset_is_known(ledger)
        ledger.state.client.high_water.lose_boards({"vote": "it was emptied"})
        for change in (
            ledger.moderation.enter("ann", b"{}"),
            ledger.moderation.withdraw("ann"),
            ledger.moderation.hide("ann", hidden=True),
        ):
            with pytest.raises(EpochLostError, match="it was emptied"):
                await change
