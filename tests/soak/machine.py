"""The machine of a soak: a store, a server with its journal, and all their faults."""

import asyncio
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from live.journal.database import Database
from live.settings import Settings
from tests.harness.disk import locked, may_mount, small_disk
from tests.harness.postgres import Postgres, running_postgres
from tests.harness.server import ServerProcess
from tests.harness.shims import Clock, Power, has_compiler
from tests.harness.store import valkey

BOARDS: Final = Path(__file__).with_name("boards.toml")
_START: Final = 60.0  # seconds within which store and server must start, even on a busy machine
_PAUSES: Final = (6.0, 15.0, 6.0)  # for each group of faults, the most seconds between two faults
_SHIFTS: Final = (-3600, -90, 0, 0, 90, 3600)  # seconds by which the store's clock is wrong


class Machine:
    """Real processes in one folder, and the faults that they must survive."""

    def __init__(self, folder: Path, stack: ExitStack, chance: random.Random, *, postgres: bool) -> None:
        self._chance = chance
        self._folder = folder
        self.faults: Counter[str] = Counter()
        (folder / "store").mkdir()
        self.data = folder / "data"
        self._disk = stack.enter_context(small_disk(self.data, "512m")) if may_mount() else None
        self._postgres: Postgres | None = stack.enter_context(running_postgres()) if postgres else None
        self.store = valkey(folder / "store")
        self.store.patience = _START
        self.settings = Settings(
            store=self.store.url, port=_free_port(), data_dir=self.data, boards=BOARDS, rate=0,
            journal=self._postgres.url if self._postgres else "sqlite",
            store_timeout=1,
        )  # fmt: skip
        self.server = ServerProcess(self.settings, folder, sys.executable)
        self._clock: Clock | None = None
        self._power: list[Power] = []
        if has_compiler():
            self._prepare_shims()
        stack.callback(self._end)

    def _prepare_shims(self) -> None:
        shims = [self._folder / name for name in ("shims-store", "shims-data")]
        for shim in shims:
            shim.mkdir()
        self._clock = Clock(shims[0])
        self._power = [Power(self._folder / "store", shims[0]), Power(self.data, shims[1])]
        libraries = [self._clock.environment["LD_PRELOAD"], self._power[0].environment["LD_PRELOAD"]]
        self.store.environment = self._clock.environment | self._power[0].environment | {
            "LD_PRELOAD": ":".join(libraries)
        }  # fmt: skip
        self.server.environment |= self._power[1].environment

    def start(self) -> None:
        """Start everything."""
        self.store.start()
        self._start_server()

    def open_database(self) -> Database:
        """Open the journal to read it."""
        return Database(self.settings.journal, self.data, self.settings.key_prefix, writes=False)

    @property
    def troubles(self) -> list[list[tuple[str, Callable[[], None]]]]:
        """The faults in groups: of the store, the server and SQL. Faults of one group can't happen at the same time."""
        store = [("store killed", self._kill_store), ("store frozen", self._freeze_store)]
        server = [("server killed", self._kill_server), ("server restarted", self._restart_server)]
        sql: list[tuple[str, Callable[[], None]]] = []
        if self._power:
            store += [("power of the store cut", self._cut_store), ("clock of the store moved", self._move_clock)]
            server.append(("power of the server cut", self._cut_server))
        if self._postgres is not None:
            sql.append(("SQL killed", self._kill_sql))
        else:
            sql.append(("SQL locked", self._lock_sql))
        if self._disk is not None:
            sql.append(("disk full", self._fill_disk))
        return [store, server, sql]

    async def trouble(self, group: int, until: float) -> None:
        """Cause faults of a group, one after another."""
        while time.monotonic() < until:
            await asyncio.sleep(self._chance.uniform(0.5, _PAUSES[group]))
            name, fault = self._chance.choice(self.troubles[group])
            await asyncio.to_thread(fault)
            self.faults[name] += 1

    def calm(self) -> None:
        """Set the clock right again."""
        if self._clock is not None:
            self._clock.shift(0)

    def _pause(self, longest: float) -> None:
        time.sleep(self._chance.uniform(0, longest))

    def _kill_store(self) -> None:
        self.store.kill()
        self._pause(1.5)
        self.store.start()

    def _cut_store(self) -> None:
        self.store.kill()
        self._power[0].lose()
        self.store.start()

    def _freeze_store(self) -> None:
        with self.store.frozen():
            self._pause(4)

    def _move_clock(self) -> None:
        assert self._clock is not None
        self._clock.shift(self._chance.choice(_SHIFTS))

    def _kill_server(self) -> None:
        self.server.kill()
        self._start_server()

    def _cut_server(self) -> None:
        self.server.kill()
        self._power[1].lose()
        self._start_server()

    def _restart_server(self) -> None:
        self.server.stop()
        self._start_server()

    def _start_server(self) -> None:
        """Start the server. Try again if it refuses to start, because the store or SQL may be unavailable."""
        end = time.monotonic() + _START
        while True:
            try:
                self.server.start("--open")
            except AssertionError as error:
                self.server.kill()
                if time.monotonic() > end:
                    raise
                said = str(error).strip() or "no answer"
                self.faults[f"start refused: {said.splitlines()[-1][:100]}"] += 1
                self._pause(0.5)
            else:
                return

    def _lock_sql(self) -> None:
        with locked(self.data / f"journal-{self.settings.key_prefix}.db"):
            self._pause(8)

    def _fill_disk(self) -> None:
        assert self._disk is not None
        self._disk.fill()
        self._pause(5)
        self._disk.clear()

    def _kill_sql(self) -> None:
        assert self._postgres is not None
        self._postgres.kill()
        self._pause(2)
        self._postgres.start()

    def _end(self) -> None:
        for process in (self.server.process, self.store.process):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `live` with the settings of the server."""
        return subprocess.run(
            [sys.executable, "-m", "live", *words],
            env=self.server.environment, cwd=self._folder, capture_output=True, text=True, check=False,
        )  # fmt: skip


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
