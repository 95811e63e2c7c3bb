"""Load other contents beside a board, and make them the contents of the board in one step."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.store.board.requests import SCRIPTS, DiscardRequest, LoadRequest, PauseRequest, SwapRequest
from live.store.board.rotation import ELEMENTS_A_STEP
from live.store.board.state import BoardState
from live.store.connection.client import Store, is_unanswered
from live.store.connection.handshake import info_fields
from live.store.connection.scripts import Script, Text, text

PAUSE: Final = Script("pause", PauseRequest, waits=False)
LOAD: Final = Script("load", LoadRequest, waits=False)
SWAP: Final = Script("swap", SwapRequest)

ELEMENTS: Final = 500  # elements at once; with 8,000, the slowest requests of producers take five times as long
_BYTES: Final = 128 * 1024  # of a command at most; a packet has less than twice as much
_TWO_PAIRS: Final = 4  # words
_ATTEMPTS: Final = 10
_REST: Final = 0.5  # seconds
_SAMPLES: Final = 100  # elements of a store key that are measured


class Write(NamedTuple):
    """A command on a store key: HSET, HDEL, ZADD, ZREM, SADD, SREM or EXPIREAT, and the words after the store key."""

    command: str
    name: str
    words: list[bytes | str | int]


def packets(writes: Iterable[Write], most: int = ELEMENTS) -> Iterator[list[Write]]:
    """Yield commands in packets of about `most` elements, or fewer if these are long."""
    waiting, words, size = list[Write](), 0, 0
    for write in writes:
        for piece, length in _pieces(write):
            waiting.append(piece)
            words += len(piece.words)
            size += length
            if words >= most or size >= _BYTES:
                yield waiting
                waiting, words, size = [], 0, 0
    if waiting:
        yield waiting


def _pieces(write: Write) -> Iterator[tuple[Write, int]]:
    """Yield commands that do the same together, each with its length in bytes."""
    length = sum(map(len, [word for word in write.words if not isinstance(word, int)]))
    if length < _BYTES or len(write.words) < _TWO_PAIRS:
        yield write, length
        return
    middle = len(write.words) // _TWO_PAIRS * 2
    for words in (write.words[:middle], write.words[middle:]):
        yield from _pieces(write._replace(words=words))


class Last(NamedTuple):
    """The last entry in the journal of a board, and the time by the board's clock, in milliseconds."""

    link: str
    now: int


class NewRules(NamedTuple):
    """What a swap says about new rules: for the journal, the shape, and the start of the newest slot."""

    ruled: msgspec.Raw
    shape: str
    newest: int | None


class Beside:
    """What is loaded beside an open board. Each swap has a token, and only the latest swap of a board goes on.

    The board's state names the token and the round, so a request that comes late changes nothing. Two lists name the
    store keys that are loaded or not deleted yet. So after a kill, others find these store keys.
    """

    def __init__(self, state: BoardState, token: str) -> None:
        self._state = state
        self._token = token
        self._number = 0  # of the round

    @classmethod
    async def begin(cls, state: BoardState) -> "Beside":
        """Begin a swap. This ends an earlier swap and its pause, and deletes what the earlier swap has loaded."""
        beside = cls(state, secrets.token_hex(4))
        await beside._ask(begins=True)
        await beside._clean("")
        return beside

    async def pause(self, ms: int | None = None) -> Last:
        """Begin a round: pause the board for some milliseconds, or end the pause. Return the journal's last entry."""
        self._number += 1
        _, link, now = await self._ask(ms=ms)
        return Last(link.decode(), int(now))

    async def _ask(self, *, ms: int | None = None, begins: bool = False, ends: bool = False) -> list[Any]:
        epoch, meta = self._state.epoch or "", self._state.keys.meta
        request = PauseRequest(epoch=epoch, token=self._token, number=self._number, ms=ms, begins=begins, ends=ends)
        return await self._run(PAUSE, [meta], request)

    async def write(self, writes: Iterable[Write]) -> None:
        """Write beside the board."""
        await write_all(writes, self._load)

    async def _load(self, write: Write) -> None:
        keys, request = self._state.keys, load_request(self._round, write)
        await self._run(LOAD, [keys.meta, keys.beside(write.name, self._token), keys.next], request)

    async def swap(
        self,
        link: str,
        sizes: Mapping[str, int],
        totals: list[str | int],
        *,
        oldest: int | None = None,
        left: int | None = None,
        taken: Text | None = None,
        rules: NewRules | None = None,
    ) -> int | str:
        """Make what was written the contents of the board, and return the board's offset.

        Return `moved` if the journal has another last entry than `link`, `slots` if the slots of the board change, and
        `due` if the board has to rotate first. `sizes` has the number of elements for each store key, and the other
        values are for `SwapRequest`.
        """
        state, keys = self._state, self._state.keys
        starts = [start.decode() for start in await state.call("ZRANGE", keys.slots, 0, -1)]
        names = dict.fromkeys((*sizes, *owned(state, starts)))
        request = SwapRequest(
            epoch=state.epoch or "",
            swap=self._round,
            link=link,
            starts=starts,
            sizes=[sizes.get(name, 0) for name in names],
            totals=totals,
            oldest=oldest,
            left=left,
            # By new rules, other tags belong to what leaves the window than entries say.
            waits=rules is None and not state.board.window.tables,
            taken=taken,
            ruled=None if rules is None else rules.ruled,
            shape=None if rules is None else rules.shape,
            newest="" if rules is None or rules.newest is None else str(rules.newest),
        )
        places = [
            place
            for number, name in enumerate(names)
            for place in (keys.beside(name, self._token), name, f"{keys.dropped}:{self._token}:{number}")
        ]
        first = [keys.meta, keys.slots, state.journal, keys.next, keys.dropped, keys.log]
        reply = await self._run(SWAP, [*first, *places], request)
        if reply[0] != b"ok":
            return str(reply[0].decode())
        await self._clean(self._token)
        return int(reply[1])

    async def give_up(self) -> None:
        """End the swap and its pause, and delete what it has left."""
        with suppress(StoreUnavailableError, EpochLostError):
            with suppress(SetupError):  # it has ended: perhaps its last request has replaced the contents after all
                await self._ask(ends=True)
            await self._clean(self._token)

    @property
    def _round(self) -> str:
        return f"{self._token} {self._number}"

    async def _clean(self, token: str) -> None:
        """Delete what the swap with a token has left, or all swaps if the token is empty, in small steps."""
        for listed in (self._state.keys.next, self._state.keys.dropped):
            for name in await self._state.call("SMEMBERS", listed):
                if name.startswith(f"{listed}:{token}".encode()):
                    await discard(self._state.client, listed, name.decode())

    async def _run(self, script: Script[Any], keys: list[str], request: Any) -> list[Any]:  # noqa: ANN401
        for left in reversed(range(1 if script is SWAP else _ATTEMPTS)):
            try:
                reply = await self._state.run(script, keys, request)
                break
            except StoreUnavailableError as error:  # the store may have run the script, and may run it once more
                if not left or not is_unanswered(error):
                    raise
                await asyncio.sleep(_REST)
        match reply:
            case [b"taken"]:
                raise SetupError(
                    f"board {self._state.keys.board} is on another server since a failover or a move, another command "
                    "replaces its contents, or it was deleted: run the command again"
                )
            case [b"incomplete", name, held, size]:
                raise SetupError(f"{name.decode()} has {held} elements instead of {size}: run the command again")
        return reply


async def write_all(writes: Iterable[Write], load: Callable[[Write], Coroutine[Any, Any, None]]) -> None:
    """Call `load` for each of `writes`, at once for a packet."""
    for packet in packets(writes):
        tasks = [asyncio.create_task(load(write)) for write in packet]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def load_request(swap: str, write: Write) -> LoadRequest:
    """Return the request that runs a command for a swap."""
    words = [text(word) if isinstance(word, bytes) else word for word in write.words]
    return LoadRequest(swap, write.command, words)


async def clean(state: BoardState) -> None:
    """Delete what swaps of an open board have left. This ends a swap that goes on."""
    if await state.call("EXISTS", state.keys.next, state.keys.dropped):
        await (await Beside.begin(state)).give_up()


async def discard(client: Store, listed: str, name: str) -> None:
    """Delete a store key in small steps, and remove it from a list."""
    request = DiscardRequest(ELEMENTS_A_STEP, "0")
    while (reply := await SCRIPTS.discard(client, [listed, name], request))[0] == b"left":
        request.cursor = reply[1].decode()


def owned(state: BoardState, starts: Iterable[str]) -> list[str]:
    """Return the store keys that a swap replaces or deletes, on a board whose slots have these starts."""
    keys, tables = state.keys, [None] if not state.board.window.tables else starts
    names = [name for start in tables for name in keys.table(start).all]
    once = keys.slots, keys.log, keys.taken, keys.entrants, keys.hidden, keys.baseline
    return [*names, *map(keys.slot, starts), *once]


async def require_room(state: BoardState) -> None:
    """Raise an error unless the server of a board has room for the contents a second time."""
    info = info_fields(await state.call("INFO", "memory"))
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    starts = [start.decode() for start in await state.call("ZRANGE", state.keys.slots, 0, -1)]
    commands = [(name, ("MEMORY", "USAGE", name, "SAMPLES", _SAMPLES)) for name in owned(state, starts)]
    size = sum(filter(None, await state.client.calls(commands)))
    if most and used + size > most:
        raise SetupError(
            f"the new contents of board {state.board.id} take about {size:,} bytes beside the old ones, and only "
            f"{max(0, most - used):,} are left of the store's `maxmemory`"
        )
