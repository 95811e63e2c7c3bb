"""`live serve`: starts the store, the listening socket and the processes."""

import asyncio
import json
import os
import platform
import re
import shlex
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from multiprocessing import current_process
from typing import Final

import msgspec
import structlog

from live import __version__
from live.auth.admin_key import FILE, provide_admin_key
from live.demo import BOARDS as SAMPLES
from live.demo import CONTEST
from live.domain.board import Boards
from live.domain.board_file import load_boards
from live.domain.urls import shown
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.journal.database import Database, open_journal
from live.journal.log.timelines import end_lost
from live.logs import configure_logs
from live.maintenance.accept_loss import accept_loss
from live.network.hosts import is_loopback
from live.settings import RootPath, Settings
from live.store.board.journal_stream import journals, stop_journal
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.state import open_boards
from live.store.connection.client import Store, connect, is_unanswered
from live.store.connection.embedded import EmbeddedStore
from live.store.connection.handshake import StoreFormatError, StoreRoleError, is_login
from live.store.registry.audit_trail import note_command
from live.store.registry.definitions import DefinitionStore
from live.system.data_directory import make_private
from live.system.processes import (
    fit,
    keep_fork_server,
    raise_limit,
    relax_collector,
    share,
    shorten_temporary_paths,
    start_fork_server,
)
from live.system.service_manager import ServiceManager
from live.system.shared_metrics import SharedMetrics
from live.system.version import commit
from live.workers.alone import LoneProcess
from live.workers.checks import (
    Finding,
    check_journal,
    check_keys,
    check_machine,
    check_servers,
    check_settings,
    check_store_settings,
    find_losses,
    loss_of_store,
    read_boards_file,
)
from live.workers.reload import Reload
from live.workers.supervisor import Supervisor

log = structlog.get_logger()

_BACKLOG: Final = 4096
_STORE_DEADLINE: Final = 10.0
_PATIENCE: Final = 2  # seconds for an answer of a server that runs


def serve(settings: Settings, *, admin_key: bool = False, accept_loss: bool = False) -> None:
    """Serve until stopped.

    With `admin_key`, create an admin API key if there is no API key. Print the API key to a terminal. If there is no
    terminal, print only the path of its file. With `accept_loss`, continue with a store that lost data.

    Raises:
        SetupError: a setting, the boards file, the port, the data directory or the store is unusable.
    """
    # Until the server serves, SIGTERM does what Ctrl-C does: asyncio cancels its task. If the handler called
    # `sys.exit` during a callback of a weak reference, Python would drop the exception. SIGINT gets its handler back,
    # because a shell makes programs that it starts in the background ignore that signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: signal.raise_signal(signal.SIGINT))
    reload = Reload(lambda: read_boards(settings))  # a reload reads `settings` with the URL of the store, set below
    reload.remember()
    configure_logs(settings.log_level)
    shorten_temporary_paths()
    manager = ServiceManager.take()
    if manager.listener is not None:  # the server demands an API key if other machines can reach the socket
        settings = msgspec.structs.replace(settings, host=manager.listener.getsockname()[0])
    boards = load_boards(settings.boards)
    with bound_sockets(settings, manager.listener) as listeners, _store(settings) as url:
        listener = listeners[0]
        settings = msgspec.structs.replace(settings, store=url, port=listener.getsockname()[1])
        asyncio.run(check_store(settings, boards, accept=accept_loss))
        _heed(check_machine(settings))
        board_count = asyncio.run(_count_boards(settings, boards))
        settings = fit(share(settings), raise_limit())
        print(f"Live Board is at {_address(settings)}/  (Ctrl-C stops it)", flush=True)  # noqa: T201 - for people
        if admin_key and settings.role != "viewers":
            try:
                _announce_key(settings, asyncio.run(provide_admin_key(settings)))
            # The store has just answered `check_store`, so this store has several servers, and one of them is away.
            except StoreUnavailableError as error:
                log.warning("the admin API key can't be read now", reason=str(error))
        relax_collector()
        log.info(
            "the server starts", version=__version__, commit=commit(), role=settings.role, workers=settings.workers,
            store=shown(settings.store), boards=board_count,
            journal=settings.journal if settings.journal in {"sqlite", "off"} else shown(settings.journal),
        )  # fmt: skip
        try:
            _run(settings, boards, listeners, manager, reload)
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP):  # these signals would interrupt the end of the store
                signal.signal(number, signal.SIG_IGN)
            log.info("the server has stopped")


async def read_boards(settings: Settings) -> Boards:
    """Read the boards file, and open its boards in the store, as a server does at its start.

    Raises:
        SetupError: the file or one of its boards can't be used.
        StoreUnavailableError: no board can be opened.
    """
    boards = await asyncio.to_thread(read_boards_file, settings)
    client = connect(settings.store, settings)
    try:
        await _open_boards(client, settings, boards)
    finally:
        await client.aclose()
    return boards


def _run(
    settings: Settings, boards: Boards, listeners: Sequence[socket.socket], manager: ServiceManager, reload: Reload
) -> None:
    """Serve in this process, or in several workers."""
    if settings.workers == 1:
        LoneProcess(listeners[0], settings, manager, boards, reload).run()
        return
    with SharedMetrics.new() as metrics:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics.folder)
        # The fork server puts its socket into the same folder, so no file is left even if all processes are killed. If
        # `tempfile.tempdir` were set instead, multiprocessing would make a folder inside this folder, and could not
        # remove it later.
        current_process()._config["tempdir"] = str(metrics.folder)  # type: ignore[attr-defined] # noqa: SLF001
        start_fork_server()

        async def supervise() -> None:
            keep_fork_server()
            await Supervisor(listeners, metrics, settings, manager, reload).run()

        asyncio.run(supervise())


def examine(settings: Settings) -> Iterator[Finding]:
    """Check everything that a server needs, as it does at its start, without a change."""
    built = f" ({commit()})" if commit() else ""
    running = f"live {__version__}{built}, Python {platform.python_version()}, {platform.system()}"
    yield Finding("versions", "ok", running)
    mistakes = list(check_settings(settings))
    yield from mistakes
    yield from check_machine(settings)
    yield _check_port(settings)
    if not {"store", "journal"} & {finding.check for finding in mistakes}:
        yield from asyncio.run(check_servers(settings))


def _check_port(settings: Settings) -> Finding:
    """Check that the port is free, unless a server of Live Board uses it: this is the one that runs."""
    place = f"{settings.host} port {settings.port}"
    try:
        with bound_socket(settings):
            return Finding("port", "ok", f"{place} is free")
    except SetupError as error:
        with suppress(OSError, ValueError, KeyError, TypeError):
            health = f"{_address(msgspec.structs.replace(settings, root_path=RootPath()))}/healthz"
            with urllib.request.urlopen(health, timeout=_PATIENCE) as reply:  # noqa: S310 - an address of this server
                return Finding("port", "ok", f"{place} has a server of version {json.load(reply)['version']}")
        return Finding("port", "fault", str(error))


def _heed(findings: Iterable[Finding]) -> None:
    """Log the warnings.

    Raises:
        SetupError: there is a fault.
    """
    found = list(findings)
    for finding in found:
        if finding.state == "warning":
            log.warning(finding.detail)
    if faults := [finding.detail for finding in found if finding.state == "fault"]:
        raise SetupError("\n".join(faults))


async def check_store(settings: Settings, boards: Boards, *, accept: bool = False) -> None:
    """Check the settings and the content of the store before serving.

    With `accept`, an operator accepts a loss of data.

    Raises:
        SetupError: the store is unavailable, is not what its URL says, may evict keys, or has lost data. Or it has a
            format that this version can't read, or another kind of board under the same id. Or no API key has the verb
            `post` although other machines can reach the server.
    """
    client = connect(settings.store, settings)
    try:
        deadline = asyncio.get_running_loop().time() + _STORE_DEADLINE
        while True:
            try:
                await _check(client, settings, boards, accept=accept)
            except (StoreFormatError, StoreRoleError) as error:
                raise SetupError(f"{shown(settings.store)}: {error}") from None
            except StoreUnavailableError as error:
                if is_login(error):
                    url = re.sub(r"://[^/]*@", "://", shown(settings.store)).replace("://", "://USER:PASSWORD@", 1)
                    raise SetupError(
                        f"the store refuses the login: {error} Set LIVE_STORE or --store to {url}"
                    ) from None
                if asyncio.get_running_loop().time() > deadline:
                    raise SetupError(f"the store {shown(settings.store)} does not answer: {error}") from None
                log.warning("waiting for the store", store=shown(settings.store), reason=str(error))
            else:
                return
            await asyncio.sleep(1)
    finally:
        await client.aclose()


async def _check(client: Store, settings: Settings, boards: Boards, *, accept: bool) -> None:
    """Check the settings and the content of the store once, for `check_store`."""
    _heed(await check_store_settings(client))
    if settings.journal == "off":
        # No process moves the entries of earlier journals out of the store any more, so end these journals.
        with _unless_away(client, "earlier journals"):
            for board, epoch in await journals(client, settings.key_prefix):
                await stop_journal(client, Keys(settings.key_prefix, board), epoch)
                log.warning("the journal of a board ends, because LIVE_JOURNAL is off", board=board)
    with nullcontext() if accept else _unless_away(client, "losses of data"):
        await _check_for_losses(client, settings, boards, accept=accept)
    await _open_boards(client, settings, boards)
    _heed(await check_journal(settings))
    if not settings.open:
        known = client.high_water.facts.keys_required or is_loopback(settings.host)
        with _unless_away(client, "API keys") if known else nullcontext():
            _heed(await check_keys(client, settings))


@contextmanager
def _unless_away(client: Store, what: str) -> Iterator[None]:
    """Skip the check in the `with` block if one of several servers does not answer.

    The server also notices a loss of data later, because it checks each new connection and compares the journals.
    """
    try:
        yield
    except StoreUnavailableError as error:
        if not client.has_shards or not is_unanswered(error):
            raise
        log.warning("a server of the store does not answer, so a check is left out", what=what, reason=str(error))


async def _count_boards(settings: Settings, in_file: Boards) -> int:
    """Count the boards of the boards file and of the store, and the boards that the demo is about to make."""
    names = {*in_file.by_id}
    if settings.demo and settings.boards is None:
        names |= {*SAMPLES, CONTEST}
    client = connect(settings.store, settings)
    with suppress(StoreUnavailableError, EpochLostError):  # a board or a server may be lost or away
        names |= (await DefinitionStore(client, settings.key_prefix).load()).boards.keys()
    await client.aclose()
    return len(names)


async def _open_boards(client: Store, settings: Settings, boards: Boards) -> None:
    """Open the boards of the boards file.

    If the store lost the data of a board, mark the board as lost. Any other board that can't be opened now is opened
    when it is used.

    Raises:
        StoreUnavailableError: no board can be opened.
        SetupError: the store holds a board with other settings.
    """
    failed: list[StoreUnavailableError] = []
    states = [Ledger(client, board, settings).state for board in boards.by_id.values()]
    with client.high_water.remembering_epochs():
        outcomes = await open_boards(states)
    for state, error in zip(states, outcomes, strict=True):
        if isinstance(error, EpochLostError):
            state.lose(error)
        elif error is not None:
            log.warning("a board can't be opened yet", board=state.board.id, reason=str(error))
            failed.append(error)
    if failed and len(failed) == len(states):
        raise failed[0]


async def _check_for_losses(client: Store, settings: Settings, boards: Boards, *, accept: bool) -> None:
    """Check that the store still holds all data that servers have seen in it, and all that the journal has.

    Boards that lost data take no events. The server starts for the other boards.

    Raises:
        SetupError: the store as a whole lost data.
    """
    high_water, prefix = client.high_water, settings.key_prefix
    losses, lost, watch = await find_losses(client, settings, partial(_journal, settings), accept=accept)
    if not losses.store:
        high_water.end_losses(losses.boards)
    if not losses:
        if accept:
            log.warning("there is no loss to accept: the store is complete. Start without --accept-loss")
        return
    if not accept:
        if losses.store:
            raise SetupError(loss_of_store(client, losses))
        high_water.lose_boards(losses.boards, at_start=True)
        return
    await accept_loss(client, prefix, boards, watch, losses)
    await note_command(client, prefix, "loss_accepted", before=str(losses))
    defined = (await DefinitionStore(client, prefix).load()).boards
    left = boards.by_id.keys() | {board for board, definition in defined.items() if definition.state == "live"}
    with _journal(settings) as journal:
        if journal is not None:
            journal.work(partial(end_lost, lost=lost, left=left))


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
    """Bind a socket. Do this first, so that nothing else starts if the port is taken.

    Raises:
        SetupError: the address is not available.
    """
    with ExitStack() as opened:
        try:
            family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
            listener = opened.enter_context(_new_socket(family, settings))
            listener.bind((settings.host, settings.port))
            listener.listen(_BACKLOG)
        except (OSError, ValueError) as error:  # ValueError: the host is not a valid name
            reason = getattr(error, "strerror", None) or error
            raise SetupError(
                f"can't listen on {settings.host} port {settings.port}: {reason}. "
                "Choose another port with --port (0 takes a free one)."
            ) from None
        yield listener


@contextmanager
def bound_sockets(settings: Settings, inherited: socket.socket | None = None) -> Iterator[list[socket.socket]]:
    """Bind a socket for each worker to the same port. The kernel spreads connections evenly over them.

    The first socket is bound alone, so that the port is refused if any other server uses it. If a service manager
    passes on a socket, the workers share it: a free worker accepts the next connection.

    Raises:
        SetupError: the address is not available.
    """
    with ExitStack() as opened:
        if inherited is not None:
            _prepare(opened.enter_context(inherited), settings)
            inherited.listen(_BACKLOG)
            yield [inherited, *(opened.enter_context(inherited.dup()) for _ in range(settings.workers - 1))]
            return
        listeners = [opened.enter_context(bound_socket(settings))]
        address = listeners[0].getsockname()
        while len(listeners) < settings.workers:
            listeners[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener = opened.enter_context(_new_socket(listeners[0].family, settings))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listeners.append(listener)
        yield listeners


def _new_socket(family: int, settings: Settings) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _prepare(listener, settings)
    return listener


def _prepare(listener: socket.socket, settings: Settings) -> None:
    """Set the options that the connections of a listening socket inherit."""
    # asyncio does not set this option on a socket that other code has made. Without the option, the body of a response
    # waits 40 ms until the client acknowledges the headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # If a peer acknowledges nothing for `slow_timeout`, the kernel drops the connection and its buffers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(settings.slow_timeout * 1000))


def _address(settings: Settings) -> str:
    """Return an address at which this machine reaches the server, even if the server listens on all addresses."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - only compared
    host = f"[{host}]" if ":" in host else host
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
        """      -H 'Content-Type: application/json' -d '{"title": "My board", "types": ["mine"]}'\n"""
        f"    curl -X POST {_address(settings)}/v1/events \\\n"
        """      -H 'Content-Type: application/json' -d '{"type": "mine", "key": "first"}'\n""",
        flush=True,
    )
