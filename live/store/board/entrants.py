"""What an operator does to single records: registering keys for a contest, and hiding."""

from typing import Any

from live.errors import ProblemError
from live.store.board.requests import EnterRequest, HideRequest, Part, rules_of
from live.store.board.state import Life
from live.store.connection.client import store_errors
from live.store.connection.scripts import text


class Entering(Life):
    """A board whose keys can be registered, and hidden."""

    async def enter(self, key: str, metadata: bytes) -> bool:
        """Register a key, or give it other metadata (JSON); True when it is new.

        Raises:
            ProblemError: `too_many_members`.
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        return bool((await self._enter(key, metadata))[2])

    async def withdraw(self, key: str) -> None:
        """Take a key out that is registered, and has no vote in the newest period.

        Raises:
            ProblemError: `record_not_found`, or `record_voted`.
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        reply = await self._enter(key, b"")
        if reply[0] == b"voted":
            raise ProblemError("record_voted", "hide the record instead")
        if not reply[2]:
            raise ProblemError("record_not_found", "the key is not registered")

    async def _enter(self, key: str, metadata: bytes) -> list[Any]:
        await self.open_to_write()
        ranking, reached, _ = self._table(self._planned().current).order
        async with store_errors():
            reply = await self._scripts.enter(
                self._client,
                [self.keys.meta, self.keys.entrants, ranking, reached],
                EnterRequest(
                    epoch=self.epoch or "",
                    channel=self.keys.channel,
                    member=key,
                    metadata=text(metadata) if metadata else None,
                    tagged=self.board.tags != "key",
                    most=self.board.max_members,
                ),
            )
        if reply[0] == b"full":
            detail = f"board {self.board.id} registers {self.board.max_members} keys: raise its `max_members`"
            raise ProblemError("too_many_members", detail)
        if reply[0] == b"epoch":
            raise self._lost(reply)
        return reply

    async def hide(self, key: str, *, hidden: bool) -> None:
        """Take a record out of the rankings, or put it back; it is counted all the while.

        Raises:
            StoreUnavailableError: the store is away.
            EpochLostError: the store lost the board.
        """
        await self.open_to_write()
        board, keys = self.board, self.keys
        while True:
            async with store_errors():
                starts = [start.decode() for start in await self._client.line.call("ZRANGE", keys.slots, 0, -1)]
                sent, parts = [keys.meta, keys.slots, keys.hidden], []
                for start in starts:
                    table = self._table(int(start))
                    parts.append(Part(start, table.suffix, len(sent) + 1))
                    sent += [keys.slot(start), *table.order, table.metadata]
                request = HideRequest(
                    epoch=self.epoch or "",
                    channel=keys.channel,
                    member=key,
                    hide=hidden,
                    rules=rules_of(board),
                    slots=parts,
                )
                reply = await self._scripts.hide(self._client, sent, request)
            if reply[0] == b"epoch":
                raise self._lost(reply)
            if reply[0] == b"ok":
                return

    async def is_hidden(self, key: str) -> bool:
        """Whether a key is hidden.

        Raises:
            StoreUnavailableError: the store is away.
        """
        async with store_errors():
            return bool(await self._client.line.call("HEXISTS", self.keys.hidden, key))
