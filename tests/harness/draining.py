"""A drainer in its own process, which a test may kill: `python -m tests.harness.draining STORE FOLDER PREFIX`.

A fourth argument is the mistake to make: a value of SQLite's `synchronous` that syncs too little.
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import live.journal.database
from live.journal.database import Database
from live.journal.log.drainer import Drainer
from live.settings import Settings
from live.store.connection.client import connect

_ROOT: Final = Path(__file__).parents[2]


def drainer_process(settings: Settings, mistake: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a drainer, and wait until it is the process that writes to the database."""
    words = [settings.store, str(settings.data_dir), settings.key_prefix, mistake]
    command = [sys.executable, "-m", "tests.harness.draining", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=_ROOT, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n", "the drainer did not start"
    return process


async def _drain(store: str, folder: str, prefix: str, mistake: str) -> None:
    if mistake:
        right = live.journal.database._write_ahead

        def wrong(connection: Any, _record: Any) -> None:
            right(connection, _record)
            connection.execute(f"PRAGMA synchronous={mistake}")

        live.journal.database._write_ahead = wrong
    settings = Settings(store=store, key_prefix=prefix, data_dir=Path(folder), journal="sqlite")
    database = Database("sqlite", settings.data_dir, prefix, writes=True)
    assert await database.take()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await Drainer(connect(store, settings), settings, database).run()


if __name__ == "__main__":
    asyncio.run(_drain(*sys.argv[1:]))
