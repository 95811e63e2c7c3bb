"""Moderates single members: registers them for a contest, and hides them."""

from typing import Any

import msgspec

from live.errors import ProblemError
from live.store.board.requests import EnterRequest, HideRequest, WithdrawRequest
from live.store.board.state import BoardState
from live.store.connection.scripts import text


class BoardModeration:
    """Register and hide the members of a board."""

    def __init__(self, state: BoardState) -> None:
        self.state = state

    async def enter(self, member: str, metadata: bytes) -> bool:
        """Register a member, or replace its metadata (JSON). Return whether the member is new."""
        state = self.state
        await state.open_to_write()
        most, keys = state.board.max_members, state.keys
        request = EnterRequest(state.epoch or "", member, text(metadata), most)
        reply = await state.run(state.scripts.enter, [keys.meta, keys.entrants, state.journal], request)
        if reply[0] == b"full":
            detail = f"board {state.board.id} registers {most} members: raise its `max_members`"
            raise ProblemError("too_many_members", detail)
        state.acknowledge(int(reply[1]))
        return bool(reply[2])

    async def withdraw(self, member: str) -> None:
        """Withdraw a registered member that has no vote in the newest period."""
        state, keys = self.state, self.state.keys
        await state.open_to_write()
        reply: list[Any] = [b"ruled"]
        while reply[0] == b"ruled":
            ranking, reached, _ = state.table(state.planned().current).order
            request = WithdrawRequest(state.epoch or "", member, state.board.tags != "key", ruled=state.ruled)
            reply = await state.run(
                state.scripts.withdraw, [keys.meta, keys.entrants, ranking, reached, state.journal], request
            )
        if reply[0] == b"voted":
            raise ProblemError("record_voted", "hide the record instead")
        state.acknowledge(int(reply[1]))
        if not reply[2]:
            raise ProblemError("record_not_found", "the member is not registered")

    async def hide(self, member: str, *, hidden: bool) -> None:
        """Take a member out of the rankings, or put it back. The board counts a hidden member as before."""
        state, own = self.state, self.state.keys
        await state.open_to_write()
        reply: list[Any] = [b""]
        while reply[0] != b"ok":  # another reply means that the slots or the rules have changed meanwhile
            starts = [start.decode() for start in await state.call("ZRANGE", own.slots, 0, -1)]
            tables = state.board.window.tables
            request = HideRequest(
                epoch=state.epoch or "",
                ruled=state.ruled,
                member=member,
                hide=hidden,
                rules=state.board.rules,
                starts=starts,
                tables=tables,
            )
            keys = [own.meta, own.slots, own.hidden, state.journal, *own.of_slots(starts, tables=tables)]
            reply = await state.run(state.scripts.hide, keys, request)
        state.acknowledge(int(reply[1]))

    async def metadata(self, member: str) -> msgspec.Raw | None:
        """Return the metadata (JSON) of a registered member; None if it is not registered."""
        held = await self.state.call("HGET", self.state.keys.entrants, member)
        return None if held is None else msgspec.Raw(held)

    async def is_hidden(self, member: str) -> bool:
        """Return whether a member is hidden."""
        return bool(await self.state.call("HEXISTS", self.state.keys.hidden, member))
