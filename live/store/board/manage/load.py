"""Write the contents of a board that the store lacks. Nobody sees them before the board is created."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from live.store.board.keys import Keys
from live.store.board.manage.swap import Write, discard, packets
from live.store.connection.client import Store

_ELEMENTS: Final = 8000  # elements in one packet: nobody uses the board yet


async def load(client: Store, keys: Keys, epoch: str, writes: Iterable[Write], progress: Callable[[int], None]) -> bool:
    """Write contents under the store keys of a board. Return False if the store has the board already.

    First, delete the data that an interrupted call has left. Keep entries of journals of other epochs: SQL may lack
    them. Call `progress` with the number of elements written so far.
    """
    if await client.call(keys.meta, "EXISTS", keys.meta):
        return False
    journals, own = keys.journal(""), keys.journal(epoch)
    found = [name async for name in client.names(keys.pattern) if name == own or not name.startswith(journals)]
    for name in found:
        await discard(client, keys.dropped, name)
    pieces, sending, done = packets(writes, _ELEMENTS), None, 0
    try:
        # The next packet is made in a thread, so that meanwhile the event loop takes the reply of the one before.
        while packet := await asyncio.to_thread(next, pieces, None):
            if sending is not None:
                await sending
            commands = [(name, (command, name, *words)) for command, name, words in packet]
            sending = asyncio.create_task(client.calls(commands))
            done += sum(len(words) // 2 for _, _, words in packet)
            progress(done)
        if sending is not None:
            await sending
    finally:
        if sending is not None:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    return True
