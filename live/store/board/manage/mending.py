"""Write under the live store keys of a board that lacks entries of its journal, while no process uses the board."""

import secrets
from collections.abc import Iterable
from typing import Final

from live.errors import EpochLostError, StoreUnavailableError
from live.store.board.keys import Keys
from live.store.board.manage.swap import LOAD, Write, load_request, write_all
from live.store.board.requests import FenceRequest, MendRequest
from live.store.connection.client import Store
from live.store.connection.scripts import Script

FENCE: Final = Script("fence", FenceRequest, waits=False)
MEND: Final = Script("mend", MendRequest)


class Mending:
    """A fenced board. If another process fences it too, this one can't write any more.

    The fence stays until `finish` has run, also if this process ends before.
    """

    def __init__(self, client: Store, keys: Keys, epoch: str) -> None:
        self._client, self._keys, self._epoch = client, keys, epoch
        self._token = secrets.token_hex(4)

    async def begin(self, link: str) -> None:
        """Fence the board, whose journal in the store ends with `link`."""
        reply = await FENCE(self._client, [self._keys.meta], FenceRequest(self._epoch, link, self._token))
        if reply[0] == b"moved":
            raise StoreUnavailableError(f"board {self._keys.board} has changed since it was read")
        if reply[0] != b"ok":
            raise EpochLostError(f"board {self._keys.board} has another epoch", self._keys.board)

    async def write(self, writes: Iterable[Write]) -> None:
        """Write elements."""
        await write_all(writes, self._load)

    async def _load(self, write: Write) -> None:
        self._check(await LOAD(self._client, [self._keys.meta, write.name], load_request(self._token, write)))

    async def finish(self, request: MendRequest) -> None:
        """End the fence."""
        request.epoch, request.swap = self._epoch, self._token
        self._check(await MEND(self._client, [self._keys.meta, self._keys.baseline], request))

    def _check(self, reply: list[bytes]) -> None:
        if reply[0] != b"ok":
            raise StoreUnavailableError(f"another process writes what board {self._keys.board} lacks")
