"""Add one event at a time during the rotation, in a process of its own, and time each add.

`python -m bench.adds STORE_URL` runs until its standard input ends, then prints the times as a JSON array.
"""

import asyncio
import random
import sys
import time
from typing import Final

import msgspec

from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.domain.event import make_entry
from live.settings import load_settings
from live.store.board.state import BoardState
from live.store.board.write.writer import BoardWriter
from live.store.connection.client import connect

_WARMUP: Final = 50
_MEAN_PAUSE: Final = 0.004  # seconds; pauses are random, so that adds do not synchronize with the steps of the rotation


async def add_until_stdin_ends(url: str) -> list[float]:
    """Add events with random pauses until stdin ends. Return the seconds that each durable `BoardWriter.add` took."""
    settings = load_settings({}, store=url)
    client = connect(url, settings)
    writer = BoardWriter(BoardState(client, make_board(Choices(id="neighbour")), settings))
    stop = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    chance = random.Random(1)
    times: list[float] = []
    while not stop.done():
        started = time.perf_counter()
        await writer.add([make_entry(f"post-{chance.randrange(1000)}", 1, None)])
        times.append(time.perf_counter() - started)
        await asyncio.sleep(chance.expovariate(1 / _MEAN_PAUSE))
    await client.aclose()
    return times[_WARMUP:]


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(add_until_stdin_ends(sys.argv[1]))).decode())
