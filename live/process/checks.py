"""What a server needs: one list of checks, for its start and for `live serve --check`, which changes nothing."""

import resource
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

import msgspec
import structlog

from live import __version__
from live.boards.admin import BoardAdmin
from live.domain.board import Boards
from live.domain.board_file import load_boards
from live.domain.urls import shown
from live.errors import JournalError, JournalLoginError, SetupError, StoreUnavailableError
from live.http.networks import is_loopback
from live.journal.database import Database, open_journal, unsafe_in_sql
from live.journal.log.timelines import Loss, find_lost
from live.settings import Settings
from live.store.board.journal_stream import sink_of
from live.store.connection.client import Store, connect
from live.store.connection.clocks import clock_faults
from live.store.connection.durability import unsafe_settings
from live.store.connection.embedded import STORE_FILES, EmbeddedStore, answers, find_binary, opened_store
from live.store.connection.handshake import info_fields, is_login
from live.store.connection.high_water import CHOICES, HighWater
from live.store.connection.loss import Losses, LossWatch
from live.store.registry.producers import ProducerStore
from live.system.data_directory import UMASK, disk_fault, is_locked, used_of
from live.system.processes import fit, share
from live.web.parts import tokens_of

log = structlog.get_logger()

_ROOM: Final = 0.1  # share of the disk that should be free


class Finding(msgspec.Struct, frozen=True):
    """The result of one check. A `fault` keeps a server from starting, and a `warning` says what can go wrong later."""

    check: str
    state: Literal["ok", "warning", "fault"]
    detail: str


def mistakes_in(settings: Settings, invalid: AbstractSet[str]) -> list[str]:
    """Find mistakes in what the settings name, such as the boards file, but not by an `invalid` setting."""
    return [finding.detail for finding in check_settings(settings, invalid)]


def check_settings(settings: Settings, invalid: AbstractSet[str] = frozenset()) -> Iterator[Finding]:
    """Read what the settings name. Leave out each check that depends on an `invalid` setting."""
    for check, look, names in (
        ("boards", partial(read_boards_file, settings), {"boards", "max_boards"}),
        ("store", lambda: connect(settings.store, settings) if settings.store else None, {"store"}),
        ("journal", partial(open_journal, settings, writes=False), {"journal", "data_dir", "key_prefix"}),
        ("tokens", partial(tokens_of, settings), {"token_secret", "token_jwks"}),
    ):
        if names & invalid:
            continue
        try:
            look()
        except SetupError as error:
            yield from blame(check, error)


def read_boards_file(settings: Settings) -> Boards:
    """Read the boards file. Refuse more boards than the settings allow."""
    boards = load_boards(settings.boards)
    if (count := len(boards.by_id)) > settings.max_boards:
        raise SetupError(
            f"the boards file has {count} boards, and the setting max_boards allows {settings.max_boards}: "
            "raise LIVE_MAX_BOARDS, or leave some out"
        )
    return boards


def check_machine(settings: Settings) -> Iterator[Finding]:
    """Check the packages, who can reach the server, how many connections it can take, and the data directory."""
    with suppress(PackageNotFoundError):
        if (other := version("live-board-client")) != __version__:
            # The modules of the client have replaced modules of the server.
            detail = f"live-board-client {other} wrote over modules of the server: install live-board alone"
            yield Finding("versions", "warning", detail)
    yield from _check_network(settings)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = share(settings)
    try:
        fitted = fit(wanted, most)
    except SetupError as error:
        yield from blame("limits", error)
    else:
        if fitted != wanted:
            detail = (
                f"a process may open {most:,} files, so it takes {fitted.max_connections:,} connections and "
                f"{fitted.max_viewers:,} viewers: raise the limit (ulimit -Hn, LimitNOFILE=), or lower the settings"
            )
            yield Finding("limits", "warning", detail)
        else:
            detail = f"a process may open {most:,} files, which is enough for its connections and viewers"
            yield Finding("limits", "ok", detail)
    yield from _check_files(settings)


def _check_network(settings: Settings) -> Iterator[Finding]:
    """Find whether other machines can reach the server although its host names or its proxies are not configured."""
    if "*" in settings.allowed_hosts and settings.open:
        detail = (
            "LIVE_ALLOWED_HOSTS is *, and events are accepted without an API key: any web page can then send events "
            "from a visitor's machine. Name the hosts instead"
        )
        yield Finding("network", "warning", detail)
    if is_loopback(settings.host) and not settings.trusted_proxies:
        yield Finding("network", "ok", f"only this machine reaches {settings.host}")
        return
    if not settings.allowed_hosts:
        detail = f"others may reach {settings.host}: name the hosts of the server with LIVE_ALLOWED_HOSTS"
        yield Finding("network", "warning", detail)
    if not settings.trusted_proxies:
        detail = "behind a proxy, all clients share one address: name the proxy with LIVE_TRUSTED_PROXIES"
        yield Finding("network", "ok", detail)


def _check_files(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    try:
        if not folder.exists():
            yield Finding("files", "ok", f"{folder} does not exist yet; the first start makes it")
            return
        next(folder.iterdir(), None)  # raises an OSError if this user may not read the folder
        used = used_of(folder)
    except OSError as error:
        yield from blame("files", error)
        return
    if folder.stat().st_mode & UMASK:
        yield Finding("files", "ok", f"other users may read {folder}; the next start makes it private")
    if full := disk_fault(folder):
        # The embedded store can't write, so it does not start.
        state: Literal["warning", "fault"] = "warning" if settings.store else "fault"
        yield Finding("files", state, f"{full}. Make room on the disk of {folder}")
    elif used > 1 - _ROOM:
        yield Finding("files", "warning", f"the disk of {folder} is {used:.0%} full: make room")
    else:
        yield Finding("files", "ok", f"{folder} is readable, and {1 - used:.0%} of its disk is free")


async def check_store_settings(client: Store) -> list[Finding]:
    """Check settings of the store that lose data, and its clock."""
    found = [Finding("store", "warning", line) for line in await unsafe_settings(client)]
    faults = await clock_faults(client)
    found += [Finding("clock", "warning", fault) for fault in faults]
    return found if faults else [*found, Finding("clock", "ok", "the store and this machine have the same time")]


async def check_journal(settings: Settings) -> list[Finding]:
    """Check whether the journal's database answers, and its settings that lose data."""
    database = open_journal(settings, writes=False)
    if database is None:
        detail = "LIVE_JOURNAL is off: a lost store can't be recovered, and there is no past"
        return [Finding("journal", "ok", detail)]
    try:
        if database.is_sqlite and not database.path.exists():
            return [Finding("journal", "ok", f"{database.path} does not exist yet; the first start makes it")]
        found = [Finding("journal", "warning", line) for line in await database.run(unsafe_in_sql)]
        return [*found, Finding("journal", "ok", f"{database.place} answers")]
    except JournalError as error:  # a server also starts while the database is away
        state: Literal["warning", "fault"] = "fault" if isinstance(error, JournalLoginError) else "warning"
        return [msgspec.structs.replace(finding, state=state) for finding in blame("journal", error)]
    finally:
        await database.aclose()


def blame(check: str, error: Exception) -> Iterator[Finding]:
    """Make a fault of each line of an expected error, and say what to do."""
    advice = ""
    if isinstance(error, JournalLoginError):
        advice = " Set LIVE_JOURNAL to postgresql://USER:PASSWORD@HOST/DATABASE."
    elif isinstance(error, JournalError):
        advice = "" if isinstance(error, SetupError) else " Start the database, or correct LIVE_JOURNAL."
    elif is_login(error):
        advice = " Set LIVE_STORE to …://USER:PASSWORD@HOST."
    elif isinstance(error, StoreUnavailableError):
        advice = " Start the store, or correct LIVE_STORE."
    for line in str(error).split("\n"):
        yield Finding(check, "fault", f"{line}{advice}")


async def check_keys(client: Store, settings: Settings) -> list[Finding]:
    """Check that an API key has the verb `post` if other machines, or a proxy, can reach the server."""
    if settings.open:
        return []
    if any("post" in record.verbs for record in (await ProducerStore(client).load()).records.values()):
        return [Finding("keys", "ok", "a producer has an API key")]
    choices = "create one with `live keys add ID`, or allow events from anyone with --open (LIVE_OPEN=true)"
    if not is_loopback(settings.host):
        detail = f"no producer has an API key, and others may reach {settings.host}: {choices}."
        return [Finding("keys", "fault", detail)]
    if settings.trusted_proxies or settings.allowed_hosts:
        reason = "no producer has an API key, so events through a proxy or under the name of another host are refused"
        return [Finding("keys", "warning", f"{reason}: {choices}.")]
    return [Finding("keys", "ok", "programs on this machine may post without an API key")]


async def find_losses(
    client: Store,
    settings: Settings,
    opening: Callable[[], AbstractContextManager[Database | None]],
    *,
    accept: bool = False,
    changes: bool = True,
) -> tuple[Losses, list[Loss]]:
    """Compare the store with what servers have seen in it, and with the journal that `opening` opens.

    Return the losses, and those that the comparison with the journal shows. Without `changes`, remember nothing.
    """
    high_water = client.high_water
    watch = LossWatch(client)
    high_water.active = changes
    lost: list[Loss] = []
    is_known = settings.journal == "off"  # whether the store was compared with both the data directory and the journal
    is_other = False  # whether the store never had this journal
    try:
        with opening() as journal:
            if journal is not None:
                lost = await find_lost(client, journal)
                is_other = bool(lost) and await sink_of(client) != journal.id
                is_known = True
    except JournalLoginError as error:
        raise SetupError(f"{error}: set LIVE_JOURNAL=postgresql://USER:PASSWORD@HOST/DATABASE") from None
    except JournalError as error:  # the server also starts while the database is away
        log.warning("can't ask the journal what the store should hold", reason=str(error))
    # A comparison with a store that is new to the data directory would make it the known one.
    losses = await watch.find() if changes or high_water.facts.store else Losses()
    for loss in lost:
        if client.servers.promotes and not (loss.gone or accept):
            continue  # not a loss: the process that moves journals sends the lost batches again
        losses.boards.setdefault(loss.timeline.board, str(loss))
    if is_other:
        losses.store.append("the store does not name the database of the journal: it was emptied, or is another one")
    if not is_known:  # without both comparisons, a loss that only the journal knows may still exist
        losses.boards = high_water.lost_boards | losses.boards
        losses.store += [high_water.lost] if high_water.lost and not losses.store else []
    return losses, lost


def loss_of_store(client: Store, losses: Losses) -> str:
    """Say what the store lost, and what an operator can do."""
    choices = CHOICES.format(path=client.high_water.path)
    return f"the store lost data: {losses}.\nWhat was known: {client.high_water.describe()}.\n{choices}."


async def check_servers(settings: Settings) -> list[Finding]:
    """Ask the store and the journal's database as they are now. Start nothing, and change nothing."""
    embedded = EmbeddedStore(settings.data_dir)
    if settings.store or answers(embedded.socket):
        try:
            async with opened_store(settings, start=False) as client:
                found = await _check_running(client, settings)
        except (SetupError, StoreUnavailableError, OSError) as error:
            found = list(blame("store", error))
    elif is_locked(settings.data_dir):
        last = " ".join(embedded.last_lines(1))
        found = [Finding("store", "fault", f"a server uses {settings.data_dir}, and its store does not answer: {last}")]
    else:
        found = [*_find_server(settings, embedded.socket)]
    return [*found, *await check_journal(settings)]


async def _check_running(client: Store, settings: Settings) -> list[Finding]:
    place = shown(settings.store) if settings.store else f"the embedded store of {settings.data_dir}"
    found = []
    for server, reply in await client.each("INFO", "server"):
        fields: dict[str, str] = {} if isinstance(reply, Exception) else info_fields(reply)
        name = "Valkey" if "valkey_version" in fields else "Redis"
        number = fields.get("valkey_version") or fields.get("redis_version", "of an unknown version")
        found.append(Finding("store", "ok", f"{server or place} answers: {name} {number}"))
    found += await check_store_settings(client)
    key = client.system.processes
    count = await client.call(key, "HLEN", key)
    losses, _ = await find_losses(client, settings, partial(readable, settings), changes=False)
    found.append(Finding("servers", "ok", f"live processes of servers: {count:,}"))
    if losses.store:
        found += blame("store", SetupError(loss_of_store(client, losses)))
    for line in () if losses.store else losses.boards.values():
        detail = f"{line}. The board takes no events: restore it, or run `live recover`"
        found.append(Finding("store", "warning", detail))
    if not losses:
        found.append(Finding("store", "ok", "the store holds what is known of it"))
    return [*found, *await _check_boards(client, settings), *await check_keys(client, settings)]


async def _check_boards(client: Store, settings: Settings) -> list[Finding]:
    """Check whether the boards in the store allow the changes of the boards file."""
    if settings.boards is None:
        return []
    try:
        file = load_boards(settings.boards)
    except SetupError:
        return []  # `check_settings` has found it
    try:
        plan = await BoardAdmin(client, settings).plan(file)
    except SetupError as error:
        return list(blame("boards", error))
    detail = f"boards that the file creates: {len(plan.created):,}; that it changes: {len(plan.changed):,}"
    return [Finding("boards", "ok", detail)]


@contextmanager
def readable(settings: Settings) -> Iterator[Database | None]:
    """Open the journal only to read it. Yield None if there is no journal yet."""
    database = open_journal(settings, writes=False)
    if database is None or (database.is_sqlite and not database.path.exists()):
        yield None
        return
    with database:
        yield database


def _find_server(settings: Settings, own: Path) -> Iterator[Finding]:
    """Say that no server uses the data directory, which others have a server, and whether its store is missing."""
    known = HighWater(settings.data_dir, settings.key_prefix)
    if known.facts.store and not any(any(settings.data_dir.glob(name)) for name in STORE_FILES):
        detail = (
            f"the files of the embedded store in {settings.data_dir} are missing. What was known: {known.describe()}"
        )
        yield from blame("store", SetupError(f"{detail}.\n{CHOICES.format(path=known.path)}."))
        return
    try:
        lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:  # a system without /proc
        lines = []
    words = [line.split() for line in lines]
    others = {Path(line[-1]).parent for line in words if line and Path(line[-1]).name == own.name} - {own.parent}
    if others:
        options = " or ".join(f"--data-dir {folder}" for folder in sorted(others))
        detail = f"no server uses {settings.data_dir}, but another one runs: to ask it, give {options}"
        yield Finding("store", "warning", detail)
    elif settings.data_dir.exists():
        detail = f"no server uses {settings.data_dir}, so its store was not asked: start the server first"
        yield Finding("store", "warning", detail)
    else:
        yield Finding("store", "ok", f"no server uses {settings.data_dir}, so no store was asked")
    try:
        yield Finding("store", "ok", f"the embedded store is {find_binary()}")
    except SetupError as error:
        yield from blame("store", error)
