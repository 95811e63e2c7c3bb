"""Registering, withdrawing and hiding members, as the store does it."""

import pytest

from live.boards.definition import read_board
from live.domain.event import Extra, make_entry
from live.errors import ProblemError
from live.store.board.ledger import Ledger
from tests.harness.boards import open_ledger


async def refusal(ledger: Ledger, member: str) -> str:
    """Withdraw a member. Return the code of the refusal."""
    with pytest.raises(ProblemError) as refused:
        await ledger.moderation.withdraw(member)
    return refused.value.code


async def test_a_member_is_registered_until_it_is_withdrawn(valkey_url: str) -> None:
    """A member with a vote stays. As many members may be registered as the board may have."""
    board = read_board("vote", {"window": "forever", "votes": {"registered": True}, "max_members": 2})
    async with open_ledger(valkey_url, board) as ledger:
        assert [await ledger.moderation.enter(member, b"{}") for member in ("ann", "bob", "ann")] == [True, True, False]
        with pytest.raises(ProblemError) as refused:
            await ledger.moderation.enter("cy", b"{}")
        assert refused.value.code == "too_many_members"
        await ledger.writer.add([make_entry("ann", 1, None, None, Extra("me"))])
        assert [await refusal(ledger, member) for member in ("ann", "cy")] == ["record_voted", "record_not_found"]
        await ledger.moderation.withdraw("bob")
        assert await ledger.moderation.metadata("bob") is None
        assert bytes(await ledger.moderation.metadata("ann") or b"") == b"{}"
        for hidden in (True, False):
            await ledger.moderation.hide("ann", hidden=hidden)
            assert await ledger.moderation.is_hidden("ann") is hidden
