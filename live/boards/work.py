"""What runs for the boards of a process besides requests: commits, rotation, baselines, and expiry."""

import asyncio
import time
from contextlib import suppress
from typing import Final

from live.boards.admin import BoardAdmin
from live.errors import EpochLostError, StoreUnavailableError
from live.fanout.hub import Hub
from live.ingest.committer import Committer
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.board.read.baseline import BaselineKeeper
from live.store.board.rotate.rotation import Rotation
from live.store.connection.client import Store
from live.store.registry.processes import INTERVAL, Processes

_LONGEST_WAIT: Final = 60.0  # seconds between two checks whether a board is used, because `idle_ttl` can change


class BoardWork:
    """The work of one process. A board that nobody uses costs almost nothing."""

    def __init__(self, client: Store, settings: Settings, hub: Hub, board_admin: BoardAdmin) -> None:
        self._hub = hub
        self._board_admin = board_admin
        self._processes = Processes(client, settings.key_prefix)
        self._rotation = Rotation(settings.rotation_interval, self._processes.owns)
        self._baselines = BaselineKeeper()
        self._committers: dict[str, Committer] = {}
        self._group: asyncio.TaskGroup | None = None
        # The run-time boards with an `idle_ttl`, each with the earliest time at which it can expire, by our clock.
        self._idle_until: dict[Ledger, float] = {}

    def start(self, ledger: Ledger, committer: Committer) -> None:
        """Work for a board from now on."""
        self._committers[ledger.state.board.id] = committer
        self._rotation.add(ledger.rotator)
        self._baselines.add(ledger.baseline)
        self._watch_use(ledger)
        if self._group is not None:
            self._group.create_task(committer.run())

    def refresh(self, ledger: Ledger) -> None:
        """Take over a new definition of a board."""
        ledger.state.on_sooner()  # fewer periods may be kept now
        self._watch_use(ledger)

    def _watch_use(self, ledger: Ledger) -> None:
        """Check whether the board is used, if it expires when it is not."""
        self._idle_until.pop(ledger, None)
        if ledger.state.board.idle_ttl is not None:
            self._idle_until[ledger] = 0

    def stop(self, ledger: Ledger) -> None:
        """Stop to work for a board. Events that are not committed yet are refused."""
        self._committers.pop(ledger.state.board.id).retire()
        self._rotation.remove(ledger.rotator)
        self._baselines.remove(ledger.baseline)
        self._idle_until.pop(ledger, None)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._group = tasks
            for committer in self._committers.values():
                tasks.create_task(committer.run())
            with suppress(StoreUnavailableError):
                await self._processes.beat()  # before the first work, so that it is shared
            tasks.create_task(self._rotation.run())
            tasks.create_task(self._baselines.run())
            while True:
                await asyncio.sleep(INTERVAL)
                with suppress(StoreUnavailableError):  # the next beat comes soon
                    beat = await self._processes.beat()
                    if beat.has_ended:
                        self._rotation.recheck()
                    if beat.was_set:
                        self._rotation.recheck(every=True)
                        self._baselines.recheck()

    async def leave(self) -> None:
        """Let the other processes know that this one ends.

        Raises:
            StoreUnavailableError: the store is unavailable; the others notice after a few seconds.
        """
        await self._processes.leave()

    async def expire(self) -> None:
        """Record that boards with viewers are in use, and delete unused ones.

        Raises:
            EpochLostError: the store lost data.
        """
        for ledger, until in list(self._idle_until.items()):
            state = ledger.state
            idle_ttl = state.board.idle_ttl
            if idle_ttl is None or ledger not in self._idle_until:
                continue
            if self._hub.channels[state.board.id].viewers:
                with suppress(EpochLostError):
                    await state.use()
            elif time.monotonic() >= until:
                wait = await self._board_admin.expire(state.board.id, state.born, idle_ttl)
                if ledger in self._idle_until:
                    self._idle_until[ledger] = time.monotonic() + min(_LONGEST_WAIT, wait or 0)
