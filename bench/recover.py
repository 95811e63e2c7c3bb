"""`recover`: the time and memory that it takes to recover a board from its journal into an empty store.

`python -m bench.recover EVENTS` prints the figures as JSON.
"""

import asyncio
import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import redis

from bench.processes import Server, measure_command, running_store
from bench.table import Report, Row, Scale
from live.boards.admin import BoardAdmin
from live.domain.board import Boards
from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.domain.event import make_entry
from live.journal.database import Database
from live.journal.log.definitions import DefinitionLog
from live.journal.log.drainer import Drainer
from live.settings import Settings, load_settings
from live.store.board.state import BoardState
from live.store.board.write.writer import BoardWriter
from live.store.connection.client import connect

_BATCH: Final = 1_000
_MEMBERS: Final = 100_000
_ROUND: Final = 50  # batches from one commit to the next
_NAME: Final = 16  # bytes of an id


def recover(scale: Scale, report: Report) -> list[Row]:
    """Recover a board of uniform likes with ids, from events alone, without a checkpoint."""
    figures = measure(scale.recover_events, report)
    return [
        Row(
            work=f"recover {scale.recover_events:,} events",
            measured=f"{figures['seconds']:.1f} s, peak memory of the command {figures['megabytes']:,.0f} MB",
            against=f"{figures['cpu']:.1f} s of CPU in the command, {figures['store_cpu']:.1f} s in the store",
            goal="≤ 10 s",
            figures=figures,
        )
    ]


def measure(events: int, report: Report) -> dict[str, object]:
    """Measure one recovery: seconds of wall clock, CPU seconds, and the peak memory of the command."""
    with TemporaryDirectory(prefix="live-bench-") as folder, running_store() as store:
        settings = load_settings({}, store=f"unix://{store.address}", data_dir=Path(folder), journal="sqlite")
        asyncio.run(_fill(settings, events, report))
        with redis.Redis(unix_socket_path=store.address) as client:
            client.flushall()
        report("recovering")
        return _recover(settings, store) | {"events": events, "members": _MEMBERS}


async def _fill(settings: Settings, events: int, report: Report) -> None:
    client = connect(settings.store, settings)
    board = make_board(Choices(id="posts"))
    await BoardAdmin(client, settings).apply(Boards([board]))
    writer = BoardWriter(BoardState(client, board, settings))
    chance = random.Random(1)
    with Database(settings.journal, settings.data_dir, settings.key_prefix, writes=True) as database:
        database.take_now()
        drainer = Drainer(client, settings, database)
        for first in range(0, events, _BATCH):
            report(f"counting: {first:,} events")
            await writer.add(
                [
                    make_entry(f"post-{chance.randrange(_MEMBERS)}", 1, None, chance.randbytes(_NAME))
                    for _ in range(min(_BATCH, events - first))
                ]
            )
            if first // _BATCH % _ROUND == 0:
                await drainer.sweep()
        await drainer.sweep()
        await DefinitionLog(client, database).follow()
    await client.aclose()


def _recover(settings: Settings, store: Server) -> dict[str, object]:
    before = _store_cpu(store)
    started = time.perf_counter()
    told, used = measure_command(
        "recover", "--from", "journal", "--json",
        "--store", settings.store, "--data-dir", str(settings.data_dir),
    )  # fmt: skip
    seconds = time.perf_counter() - started
    (board,) = msgspec.json.decode(told)["boards"]
    return {
        "seconds": seconds,
        "cpu": used.ru_utime + used.ru_stime,
        "store_cpu": _store_cpu(store) - before,
        "megabytes": used.ru_maxrss / 1024,
        "recovered": board["members"],
    }


def _store_cpu(store: Server) -> float:
    with redis.Redis(unix_socket_path=store.address) as client:
        info = client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


if __name__ == "__main__":
    print(msgspec.json.encode(measure(int(sys.argv[1]), lambda note: print(note, end="\r", file=sys.stderr))).decode())
