"""`live serve`: starts the store, the listening socket and the processes."""

import asyncio
import os
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec
import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from live.auth.admin_key import FILE, provide_admin_key
from live.domain.board import Boards
from live.domain.board_file import load_boards
from live.domain.urls import shown
from live.errors import JournalError, SetupError, StoreUnavailableError
from live.journal.database import Database, open_journal, unsafe_in_sql
from live.journal.log.timelines import Loss, end_lost, find_lost
from live.logs import configure_logs
from live.maintenance.accept_loss import accept_loss
from live.network.hosts import is_loopback
from live.protocols.http.connection import HttpProtocol
from live.settings import Settings, as_environment
from live.store.board.journal_stream import journals, stop_journal
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.state import open_boards
from live.store.connection.client import Store, connect
from live.store.connection.durability import unsafe_settings
from live.store.connection.embedded import EmbeddedStore
from live.store.connection.handshake import StoreFormatError, StoreRoleError
from live.store.connection.high_water import CHOICES
from live.store.connection.loss import LossWatch
from live.store.registry.producers import ProducerStore
from live.system.data_directory import make_private
from live.system.processes import fit, raise_limit, relax_collector
from live.web.app import make_app

log = structlog.get_logger()

_BACKLOG: Final = 4096
_STORE_DEADLINE: Final = 10.0


def serve(settings: Settings, *, admin_key: bool = False, accept_loss: bool = False) -> None:
    """Serve until stopped.

    With `admin_key`, create an admin API key if there is no API key. Print the API key to a terminal. If there is no
    terminal, print only the path of its file. With `accept_loss`, continue with a store that lost data.

    Raises:
        SetupError: a setting, the boards file, the port, the data directory or the store is unusable.
    """
    # uvicorn raises the signal again after it has stopped. Exit normally then.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(0))
    configure_logs(settings.log_level)
    boards = load_boards(settings.boards)
    if len(boards.by_id) > settings.max_boards:
        raise SetupError(
            f"the boards file has {len(boards.by_id)} boards, and the setting max_boards allows {settings.max_boards}: "
            "raise LIVE_MAX_BOARDS, or leave some out"
        )
    with bound_socket(settings) as listener, _store(settings) as url:
        settings = msgspec.structs.replace(settings, store=url, port=listener.getsockname()[1])
        if warning := unsafe_hosts(settings):
            log.warning(warning)
        asyncio.run(check_store(settings, boards, accept=accept_loss))
        settings = fit(settings, raise_limit())
        print(f"Live Board is at {_address(settings)}/  (Ctrl-C stops it)", flush=True)  # noqa: T201 - for people
        if admin_key and settings.role in settings.admin_roles:
            _announce_key(settings, asyncio.run(provide_admin_key(settings)))
        relax_collector()
        if settings.workers == 1:
            uvicorn.Server(server_config(make_app(settings, boards), settings)).run(sockets=[listener])
            return
        with tempfile.TemporaryDirectory(prefix="live-metrics-") as metrics:
            os.environ.update(as_environment(settings), PROMETHEUS_MULTIPROC_DIR=metrics)
            config = server_config("live.web.app:app_from_environment", settings)
            Multiprocess(config, sockets=[listener]).run()


def unsafe_hosts(settings: Settings) -> str | None:
    """Warn about unsafe host names: return the warning, or None."""
    if "*" not in settings.allowed_hosts or not settings.open:
        return None
    return (
        "LIVE_ALLOWED_HOSTS is *, and events are accepted without an API key: any web page can then send events from a "
        "visitor's machine. Name the hosts instead."
    )


async def check_store(settings: Settings, boards: Boards, *, accept: bool = False) -> None:
    """Check the settings and the content of the store before serving.

    With `accept`, an operator accepts a loss of data.

    Raises:
        SetupError: the store is unavailable, is a replica or a node of a Cluster, may evict keys, or has lost data. Or
            it has a format that this version cannot read, or another kind of board under the same id. Or no producer
            has an API key although others can reach the server.
    """
    client = connect(settings.store, settings)
    watch = LossWatch(client, settings.key_prefix)
    try:
        deadline = asyncio.get_running_loop().time() + _STORE_DEADLINE
        while True:
            try:
                for line in await unsafe_settings(client):
                    log.warning(line)
                if settings.journal == "off":  # nobody would move the entries of earlier journals out of the store
                    for board, epoch in await journals(client, settings.key_prefix):
                        await stop_journal(client, Keys(settings.key_prefix, board), epoch)
                        log.warning("the journal of a board ends, because LIVE_JOURNAL is off", board=board)
                await _check_for_losses(client, settings, boards, watch, accept=accept)
                with client.high_water.remembering_epochs():
                    await open_boards([Ledger(client, board, settings).state for board in boards.by_id.values()])
                database = open_journal(settings, writes=False)
                if database is not None:
                    for line in await unsafe_in_sql(database):
                        log.warning(line)
                    await database.aclose()
                if not settings.open:
                    await _require_keys(ProducerStore(client, settings.key_prefix), settings)
            except (StoreFormatError, StoreRoleError) as error:
                raise SetupError(f"{shown(settings.store)}: {error}") from None
            except StoreUnavailableError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise SetupError(f"the store {shown(settings.store)} does not answer: {error}") from None
                log.warning("waiting for the store", store=shown(settings.store), reason=str(error))
            else:
                return
            await asyncio.sleep(1)
    finally:
        await client.aclose()


async def _check_for_losses(
    client: Store, settings: Settings, boards: Boards, watch: LossWatch, *, accept: bool
) -> None:
    """Check that the store still holds all data that servers have seen in it, and all that the journal has."""
    high_water = client.high_water
    lost: list[Loss] = []  # what the journal knows and the store does not hold
    try:
        with _journal(settings) as journal:
            if journal is not None:
                lost = await find_lost(client, settings.key_prefix, journal)
    except JournalError as error:  # without its database, the server starts all the same
        log.warning("can't ask the journal what the store should hold", reason=str(error))
    faults = await watch.find() + [str(loss) for loss in lost]
    if not faults:
        high_water.clear_loss()
        if accept:
            log.warning("there is no loss to accept: the store is complete. Start without --accept-loss")
        return
    reason = "; ".join(faults)
    if not accept:
        choices = CHOICES.format(path=high_water.path)
        raise SetupError(f"the store lost data: {reason}.\nWhat was known: {high_water.describe()}.\n{choices}.")
    await accept_loss(client, settings.key_prefix, boards, watch, reason)
    with _journal(settings) as journal:
        if journal is not None:
            journal.work(partial(end_lost, lost=lost))


@contextmanager
def _journal(settings: Settings) -> Iterator[Database | None]:
    """Open the journal, if there is one.

    If another process writes to the journal, that process looks after it, so yield None.
    """
    journal = open_journal(settings, writes=True)
    if journal is None:
        yield None
        return
    with journal:
        yield journal if journal.take_now() else None


async def _require_keys(producers: ProducerStore, settings: Settings) -> None:
    """If no producer has an API key, refuse to serve other machines. If they can come only through a proxy, warn."""
    if any("post" in record.verbs for record in (await producers.load()).records.values()):
        return
    choices = "create one with `live keys add ID`, or allow events from anyone with --open (LIVE_OPEN=true)"
    if not is_loopback(settings.host):
        raise SetupError(f"no producer has an API key, and others may reach {settings.host}: {choices}.")
    if settings.trusted_proxies or settings.allowed_hosts:
        reason = "no producer has an API key, so events through a proxy or under the name of another host are refused"
        log.warning(f"{reason}: {choices}.")  # noqa: G004 - a message for people


@contextmanager
def _store(settings: Settings) -> Iterator[str]:
    """Yield the URL of the store. The embedded store runs during the `with` block."""
    if settings.store:
        make_private(settings.data_dir)
        yield settings.store
        return
    embedded = EmbeddedStore(settings.data_dir, settings.store_memory)
    try:
        embedded.start()
        log.info("memory limit of the embedded store", megabytes=embedded.memory // 1024**2)
        yield embedded.url
    finally:
        embedded.stop()


@contextmanager
def bound_socket(settings: Settings) -> Iterator[socket.socket]:
    """Bind a socket. Call this first, so that nothing else starts if the port is taken.

    Raises:
        SetupError: the address is not available.
    """
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit this option. asyncio does not set it on a socket that other code has made. Without
        # the option, the body of a response waits 40 ms until the client acknowledges the headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Accepted sockets inherit this option. If a peer acknowledges nothing for this time, the kernel drops the
        # connection and its buffers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(settings.slow_timeout * 1000))
        listener.bind((settings.host, settings.port))
        listener.set_inheritable(True)
        listener.listen(_BACKLOG)
    except (OSError, ValueError) as error:  # ValueError: the host is not a valid name
        reason = getattr(error, "strerror", None) or error
        raise SetupError(
            f"can't listen on {settings.host} port {settings.port}: {reason}. "
            "Choose another port with --port (0 takes a free one)."
        ) from None
    with listener:
        yield listener


def _address(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}{settings.root_path}"


def _announce_key(settings: Settings, key: str | None) -> None:
    """Print the path of the admin API key's file.

    Show the API key itself only on a terminal, because a log must have no secret.
    """
    if key is None:
        return
    path = (settings.data_dir / FILE).resolve()
    shown = f":\n\n    {key}\n" if sys.stdout.isatty() else ".\n"
    print(  # noqa: T201 - for people
        f"\nThe admin API key of this server is in {path}{shown}\n"
        "Create a board with it, and send an event to the board:\n\n"
        f"    curl -X PUT {_address(settings)}/v1/boards/mine \\\n"
        f"""      -H "Authorization: Bearer $(cat {shlex.quote(str(path))})" \\\n"""
        """      -H 'Content-Type: application/json' -d '{"title": "My board", "source": ["mine"]}'\n"""
        f"    curl -X POST {_address(settings)}/v1/events \\\n"
        """      -H 'Content-Type: application/json' -d '{"type": "mine", "key": "first"}'\n""",
        flush=True,
    )


def server_config(app: ASGIApp | str, settings: Settings) -> uvicorn.Config:
    """Configure how uvicorn serves an application.

    `app` can be the name of a factory, which each worker process calls.
    """
    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        workers=settings.workers,
        http=HttpProtocol,
        ws="none",  # `HttpProtocol` takes WebSockets itself
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_keep_alive=max(1, round(settings.idle_timeout)),
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_timeout)),
    )
