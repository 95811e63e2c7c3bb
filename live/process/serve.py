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
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from multiprocessing import current_process
from typing import Final

import msgspec
import structlog

from live import __version__
from live.auth.keys import FILE, provide_admin_key
from live.boards.admin import BoardAdmin
from live.demo import BOARDS as SAMPLES
from live.demo import CONTEST
from live.domain.board_file import load_boards
from live.domain.urls import shown
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.http.networks import is_loopback
from live.journal.database import Database, open_journal
from live.logs import configure_logs
from live.process.checks import (
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
from live.process.supervisor import Supervisor
from live.process.worker import OnlyServer
from live.settings import Settings
from live.store.board.journal_stream import journals, stop_journal
from live.store.connection.client import Store, connect, is_unanswered
from live.store.connection.embedded import EmbeddedStore
from live.store.connection.handshake import StoreFormatError, StoreRoleError, is_login
from live.store.connection.loss import LossWatch
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

log = structlog.get_logger()

_BACKLOG: Final = 4096
_NOT_STARTED: Final = 3  # the exit status if the application does not start, as uvicorn has it
_STORE_DEADLINE: Final = 10.0
_PATIENCE: Final = 2  # seconds for an answer of a server that runs
_AGAIN: Final = 5.0  # seconds until a reload that found the store away is repeated
_MOST_NAMED: Final = 50  # boards that a line of the log names


async def apply_file(client: Store, settings: Settings) -> None:
    """Define the boards of the boards file in the store, or without a file the default board if there is no board."""
    file = await asyncio.to_thread(load_boards, settings.boards)
    plan = await BoardAdmin(client, settings).apply(file, only_first=settings.boards is None)
    if settings.boards is None:
        return
    changed = [f"{board} ({', '.join(names)})" for board, names in plan.changed.items()]
    log.info("the boards are as the file says", created=_named(plan.created), changed=_named(changed),
        limits=_named(plan.limits), unchanged=plan.unchanged)  # fmt: skip
    if plan.left:
        command = "curl -X DELETE -H 'Authorization: Bearer KEY' URL/v1/boards/BOARD"
        log.warning("boards that the file names no longer stay", boards=_named(plan.left), delete=command)


def _named(boards: Sequence[str]) -> list[str]:
    more = len(boards) - _MOST_NAMED
    return [*boards[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]


class Reloads:
    """Applies the boards file on SIGHUP. If that fails, the boards stay as they are."""

    def __init__(self) -> None:
        self._wanted = asyncio.Event()

    def remember(self) -> None:
        """Remember a SIGHUP that arrives before `run`. Otherwise it would end the process."""
        signal.signal(signal.SIGHUP, lambda _signal, _frame: self.want())

    def want(self) -> None:
        """Let `run` apply the file, as a SIGHUP does."""
        self._wanted.set()

    async def run(self, settings: Settings) -> None:
        """Apply the file on each SIGHUP, until cancelled."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.want)
        number = 0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            number += 1
            # The log drops repeated lines. The number makes each of these lines different.
            kept = f"reload {number} failed, so the boards stay as they are"
            log.info("reading the boards file again", reload=number)
            client = connect(settings.store, settings)
            LossWatch(client).guard_connections()
            try:
                await apply_file(client, settings)
            except StoreUnavailableError as error:
                log.warning(f"reload {number} waits for the store", reason=str(error))  # noqa: G004 - see above
                asyncio.get_running_loop().call_later(_AGAIN, self.want)
            except (SetupError, EpochLostError) as error:
                log.error(kept, reason=str(error))  # noqa: TRY400 - a mistake of the user, not ours
            except Exception:
                log.exception(kept)
            finally:
                await client.aclose()


def serve(settings: Settings, *, admin_key: bool = False) -> None:
    """Serve until stopped.

    With `admin_key`, create an admin API key if there is no API key. Print the path of its file, and to a terminal the
    key.
    """
    # Until the server serves, SIGTERM does what Ctrl-C does: asyncio cancels its task. If the handler called
    # `sys.exit` during a callback of a weak reference, Python would drop the exception. SIGINT gets its handler back,
    # because a shell makes programs that it starts in the background ignore that signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: signal.raise_signal(signal.SIGINT))
    reloads = Reloads()
    reloads.remember()
    configure_logs(settings.log_level)
    shorten_temporary_paths()
    manager = ServiceManager.take()
    if manager.listener is not None:  # the server demands an API key if other machines can reach the socket
        settings = msgspec.structs.replace(settings, host=manager.listener.getsockname()[0])
    read_boards_file(settings)
    with bound_sockets(settings, manager.listener) as listeners, _store(settings) as url:
        listener = listeners[0]
        settings = msgspec.structs.replace(settings, store=url, port=listener.getsockname()[1])
        asyncio.run(check_store(settings, reloads))
        _heed(check_machine(settings))
        board_count = asyncio.run(_count_boards(settings))
        settings = fit(share(settings), raise_limit())
        outside = _outside(settings)
        others = "" if outside is None else f"\nOther machines reach it at {_address(outside)}/"
        print(f"Live Board is at {_address(settings)}/  (Ctrl-C stops it){others}", flush=True)  # noqa: T201 - for people
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
            _run(settings, listeners, manager, reloads)
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP):  # these signals would interrupt the end of the store
                signal.signal(number, signal.SIG_IGN)
            log.info("the server has stopped")


def _run(settings: Settings, listeners: Sequence[socket.socket], manager: ServiceManager, reloads: Reloads) -> None:
    async def follow_file(serving: Coroutine[None, None, None]) -> None:
        reloading = asyncio.create_task(reloads.run(settings))
        await serving
        reloading.cancel()

    if settings.workers == 1:
        if settings.journal != "off":  # to start it later would stop the event loop for a second
            start_fork_server()
        server = OnlyServer(settings, manager)
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(follow_file(server.serve(sockets=[listeners[0]])))
        if not server.started:
            raise SystemExit(_NOT_STARTED)
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
            await Supervisor(listeners, metrics, settings, manager).run()

        asyncio.run(follow_file(supervise()))


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
    """Check the port, which a running server of Live Board may use."""
    place = f"{settings.host} port {settings.port}"
    try:
        with bound_socket(settings):
            return Finding("port", "ok", f"{place} is free")
    except SetupError as error:
        with suppress(OSError, ValueError, KeyError, TypeError):
            health = f"{_address(msgspec.structs.replace(settings, root_path=''))}/healthz"
            with urllib.request.urlopen(health, timeout=_PATIENCE) as reply:  # noqa: S310 - an address of this server
                return Finding("port", "ok", f"{place} has a server of version {json.load(reply)['version']}")
        return Finding("port", "fault", str(error))


def _heed(findings: Iterable[Finding]) -> None:
    found = list(findings)
    for finding in found:
        if finding.state == "warning":
            log.warning(finding.detail)
    if faults := [finding.detail for finding in found if finding.state == "fault"]:
        raise SetupError("\n".join(faults))


async def check_store(settings: Settings, reloads: Reloads | None = None) -> None:
    """Check the settings and the content of the store before serving, and define the boards of the boards file.

    If the server of the store that holds the definitions is away, `reloads` applies the boards file later. If the file
    changes a board that lost data, all boards stay as they are, and the server starts.
    """
    client = connect(settings.store, settings)
    try:
        deadline = asyncio.get_running_loop().time() + _STORE_DEADLINE
        while True:
            try:
                await _check(client, settings, reloads or Reloads())
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


async def _check(client: Store, settings: Settings, reloads: Reloads) -> None:
    """Check once, as `check_store` does."""
    _heed(await check_store_settings(client))
    if settings.journal == "off":
        # No process moves the entries of earlier journals out of the store any more, so end these journals.
        with _unless_away(client, "earlier journals"):
            for board, epoch in await journals(client):
                await stop_journal(client, client.keys_of(board), epoch)
                log.warning("the journal of a board ends, because LIVE_JOURNAL is off", board=board)
    with _unless_away(client, "losses of data"):
        await _check_for_losses(client, settings)
    with _unless_away(client, "the boards file", reloads.want):
        try:
            await apply_file(client, settings)
        except EpochLostError as error:
            if client.high_water.lost:
                raise
            # As after a failed reload, the server goes on with the boards that are there.
            log.error("the file changes a board that lost data: the boards stay as they are", reason=str(error))  # noqa: TRY400
    _heed(await check_journal(settings))
    if not settings.open:
        known = client.high_water.facts.keys_required or is_loopback(settings.host)
        with _unless_away(client, "API keys") if known else nullcontext():
            _heed(await check_keys(client, settings))


@contextmanager
def _unless_away(client: Store, what: str, later: Callable[[], None] | None = None) -> Iterator[None]:
    """Skip the check in the `with` block if one of several servers does not answer, and call `later`.

    The server also notices a loss of data later, because it checks each new connection and compares the journals.
    """
    try:
        yield
    except StoreUnavailableError as error:
        if not client.has_shards or not is_unanswered(error):
            raise
        log.warning("a server of the store does not answer, so a check is left out", what=what, reason=str(error))
        if later is not None:
            later()


async def _count_boards(settings: Settings) -> int:
    """Count the boards that the demo is about to make, too."""
    names = set[str]()
    if settings.demo and settings.boards is None:
        names |= {*SAMPLES, CONTEST}
    client = connect(settings.store, settings)
    with suppress(StoreUnavailableError, EpochLostError):  # a board or a server may be lost or away
        names |= (await DefinitionStore(client).load()).boards.keys()
    await client.aclose()
    return len(names)


async def _check_for_losses(client: Store, settings: Settings) -> None:
    """Go on if only some boards lost data: they take no events."""
    losses, _ = await find_losses(client, settings, partial(_journal, settings))
    if losses.store:
        raise SetupError(loss_of_store(client, losses))
    client.high_water.end_losses(losses.boards)
    if losses:
        client.high_water.lose_boards(losses.boards, at_start=True)


@contextmanager
def _journal(settings: Settings) -> Iterator[Database | None]:
    """Open the journal unless another process writes to it: then that process looks after it."""
    journal = open_journal(settings, writes=True)
    if journal is None:
        yield None
        return
    with journal:
        yield journal if journal.take_now() else None


@contextmanager
def _store(settings: Settings) -> Iterator[str]:
    """Run the embedded store, if it is used, during the `with` block."""
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
    """Bind a socket. Do this first, so that nothing else starts if the port is taken."""
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
    # asyncio does not set this option on a socket that other code has made. Without the option, the body of a response
    # waits 40 ms until the client acknowledges the headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # If a peer acknowledges nothing for `slow_timeout`, the kernel drops the connection and its buffers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(settings.slow_timeout * 1000))


def _address(settings: Settings) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - only compared
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{settings.port}{settings.root_path}"


def _outside(settings: Settings) -> Settings | None:
    """The settings with the address of this machine in its network, if the server listens on all addresses."""
    target = {"0.0.0.0": "192.0.2.1", "::": "2001:db8::1"}.get(settings.host)  # noqa: S104 - only compared
    if target is None or settings.open:  # an open server answers only to the names in `allowed_hosts`
        return None
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.connect((target, 9))  # sends nothing: the system only chooses a route (RFC 5737, RFC 3849)
            return msgspec.structs.replace(settings, host=one.getsockname()[0])
    except OSError:  # this machine has no network
        return None


def _announce_key(settings: Settings, key: str | None) -> None:
    """Print the key itself only on a terminal: a log must have no secret. Without a key, name the command for one."""
    if key is None:
        print(  # noqa: T201 - for people
            "This start made no admin API key, because the store has other API keys, or had them. To make one, run "
            "`live keys add boss --verbs admin`.",
            flush=True,
        )
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
