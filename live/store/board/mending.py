"""Corrects a board where it differs from its journal, or its journal where it differs from the board."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from live.errors import StoreUnavailableError
from live.store.board.comparison_requests import MendRequest
from live.store.board.state import MOST_REPLANS, BoardState
from live.store.connection.client import store_errors
from live.store.connection.scripts import Script, text

MEND: Final = Script("mend", MendRequest)

_FIELDS: Final = 20_000  # fields of slots that one call reads, which takes the store a few milliseconds
_MOST: Final = 200  # corrections in one call
_RETRY_PAUSE: Final = 0.05  # seconds


class Value(msgspec.Struct, frozen=True):
    """A value to correct: its name, what the store held, what is right (None for none), and the tag of the member."""

    name: bytes
    held: bytes | None
    right: bytes | None
    tag: bytes = b""

    @property
    def amount(self) -> int:
        """What the right value is more than the one that the store held."""
        return int(self.right or 0) - int(self.held or 0)


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """Values under one store key that were compared at an offset; `kind`, `start` and `suffix` as in `MendRequest`."""

    kind: str
    key: str
    start: int | None
    suffix: str
    adds_up: bool
    compared: int
    newest: int | None
    values: Sequence[Value]


class BoardMender:
    """Corrects one board. Each correction has a number, so that it applies once although its reply is lost."""

    def __init__(self, state: BoardState, mend: Script[MendRequest] = MEND) -> None:
        self.state = state
        self._mend = mend
        self._writer = f"reconcile-{secrets.token_hex(8)}"
        self._sequence = 0

    async def mend(self, correction: Correction, *, teach: bool) -> int:
        """Give the store the right values; with `teach`, give the journal what the store holds.

        Returns how many values were corrected. The others have changed since the comparison: compare them again.

        Raises:
            StoreUnavailableError: there was no reply before the write deadline.
            EpochLostError: the board has another epoch.
        """
        done, left = 0, list(correction.values)
        while left:
            starts = await self._starts(correction)
            most = max(1, min(_MOST, _FIELDS // max(1, len(starts))))
            done += await self._step(correction, left[:most], starts, teach=teach)
            left = left[most:]
        return done

    async def _starts(self, correction: Correction) -> list[str]:
        """The starts of all slots, where several of them add up to a score."""
        if correction.kind != "slot" or self.state.board.window.tables:
            return []
        return [start.decode() for start in await self.state.call("ZRANGE", self.state.keys.slots, 0, -1)]

    async def _step(self, correction: Correction, values: list[Value], starts: list[str], *, teach: bool) -> int:
        """Correct some values at one instant. Returns how many."""
        newest, self._sequence = correction.newest, self._sequence + 1
        for _ in range(MOST_REPLANS):
            keys, request = self._request(correction, values, starts, newest, teach=teach)
            match await self._send(keys, request):
                case [b"ok", _]:
                    return len(values)
                case [b"moved", now]:
                    newest = int(now) if now else None
                    starts = await self._starts(correction)
                    if not self._is_live(correction, newest):
                        return 0
                case [b"changed", *numbers]:
                    changed = set(numbers)
                    values = [value for number, value in enumerate(values, 1) if number not in changed]
                    if not values:
                        return 0
                case _:
                    return 0
        return 0

    def _is_live(self, correction: Correction, newest: int | None) -> bool:
        """Whether a slot is still in the window. One that has begun to leave is not corrected."""
        start = correction.start
        return start is None or newest is None or start >= self.state.board.window.oldest(newest)

    def _request(
        self, correction: Correction, values: Sequence[Value], starts: list[str], newest: int | None, *, teach: bool
    ) -> tuple[list[str], MendRequest]:
        """The store keys and the request of a correction."""
        state, own = self.state, self.state.keys
        suffix = correction.suffix
        order = own.table(suffix.removeprefix(":") or None).order
        keys = [own.meta, own.slots, own.writers, own.hidden, state.journal, correction.key, *order]
        keys += [own.slot(start) for start in starts if start != str(correction.start)]
        adds_up, sign = correction.adds_up, -1 if teach else 1
        request = MendRequest(
            epoch=state.epoch or state.born,
            channel=own.channel,
            writer=self._writer,
            sequence=self._sequence,
            rules=state.rules,
            teach=teach,
            compared=correction.compared,
            newest=newest,
            kind=correction.kind,
            start=correction.start,
            suffix=suffix,
            starts=starts if correction.kind == "slot" and not state.board.window.tables else None,
            names=[text(value.name) for value in values],
            amounts=[sign * value.amount for value in values] if adds_up else None,
            seen=None if adds_up else [text(value.held or b"") for value in values],
            values=None if adds_up else [text((value.held if teach else value.right) or b"") for value in values],
            tags=[text(value.tag) for value in values] if correction.kind == "slot" else None,
        )
        return keys, request

    async def _send(self, keys: Sequence[str], request: MendRequest) -> list[Any]:
        """Run the script, under one number, until there is a reply or the deadline has passed."""
        loop, state = asyncio.get_running_loop(), self.state
        deadline = loop.time() + state.settings.write_deadline
        while True:
            try:
                async with store_errors(), asyncio.timeout_at(deadline):
                    return await state.run(self._mend, keys, request)
            except StoreUnavailableError:
                if loop.time() + _RETRY_PAUSE >= deadline:
                    raise
            await asyncio.sleep(_RETRY_PAUSE)
