"""`live doctor`: checks everything that a server needs, and says what to do."""

import asyncio
import platform
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

import msgspec
import typer

from live import __version__
from live.cli.context import BoardsOption, Context, DataDirOption, JsonOption, StoreOption
from live.cli.terminal import make_table, out
from live.domain.board_file import load_boards
from live.domain.text import counted
from live.domain.urls import shown
from live.errors import JournalError, JournalLoginError, SetupError, StoreUnavailableError
from live.journal.database import open_journal, unsafe_in_sql
from live.journal.log.timelines import find_lost
from live.network.hosts import is_loopback
from live.settings import Settings, load_settings
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store
from live.store.connection.clocks import clock_faults
from live.store.connection.durability import unsafe_settings
from live.store.connection.embedded import EmbeddedStore, answers, opened_store
from live.store.connection.handshake import info_fields, is_login
from live.store.connection.loss import LossWatch
from live.system.data_directory import UMASK, is_locked
from live.system.disk import disk_fault, used_of
from live.system.version import commit

_ROOM: Final = 0.1  # share of the disk that should be free
_SPARE: Final = 256  # descriptors for everything but connections


class Finding(msgspec.Struct, frozen=True):
    """The result of one check. A `fault` keeps a server from working, and a `warning` says what can go wrong later."""

    check: str
    state: Literal["ok", "warning", "fault"]
    detail: str


class _Examination:
    """Collects the findings of the checks."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def note(self, check: str, detail: str) -> None:
        self.findings.append(Finding(check, "ok", detail))

    def warn(self, check: str, detail: str) -> None:
        self.findings.append(Finding(check, "warning", detail))

    def blame(self, check: str, detail: str) -> None:
        self.findings.append(Finding(check, "fault", detail))

    @contextmanager
    def checking(self, check: str) -> Iterator[None]:
        """Note an expected error of the `with` block as faults: one fault for each line of the error's message."""
        try:
            yield
        except (SetupError, StoreUnavailableError, OSError) as error:
            advice = ""
            if isinstance(error, JournalLoginError):
                advice = " Set LIVE_JOURNAL to postgresql://USER:PASSWORD@HOST/DATABASE."
            elif isinstance(error, JournalError):
                advice = "" if isinstance(error, SetupError) else " Start the database, or correct LIVE_JOURNAL."
            elif is_login(error):
                advice = " Set LIVE_STORE to …://USER:PASSWORD@HOST."
            elif isinstance(error, StoreUnavailableError):
                advice = " Start the store, or correct LIVE_STORE."
            self.findings += [Finding(check, "fault", f"{line}{advice}") for line in str(error).split("\n")]


def doctor(
    *,
    store: StoreOption = None,
    boards: BoardsOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check settings, files, limits, the store, the database and the clocks; exit with 1 if a server can't work.

    It changes nothing and starts nothing. Give it the settings of the server. Without --store, it looks at the embedded
    store of a running `live serve`.

    Example: live doctor
    """
    at = _Examination()
    built = f" ({commit()})" if commit() else ""
    at.note("versions", f"live {__version__}{built}, Python {platform.python_version()}, {platform.system()}")
    _check_packages(at)
    with at.checking("settings"):
        settings = load_settings(store=store, boards=boards, data_dir=data_dir)
        at.note("settings", "every variable is known and valid")
        with at.checking("boards"):
            at.note("boards", f"the boards file defines {counted(len(load_boards(settings.boards).by_id), 'board')}")
        _check_network(at, settings)
        _check_limits(at, settings)
        with at.checking("files"):
            _check_files(at, settings)
        asyncio.run(_check_servers(at, settings))
    is_sound = all(finding.state != "fault" for finding in at.findings)
    if not Context(Settings(), as_json=as_json).report({"sound": is_sound, "findings": at.findings}):
        table = make_table("check", "state", "what", wraps=["what"])
        for finding in at.findings:
            table.add_row(finding.check, finding.state, finding.detail)
        out.print(table)
    if not is_sound:
        raise typer.Exit(1)


def _check_packages(at: _Examination) -> None:
    """Warn if a client package of another version is installed: its modules have replaced modules of the server."""
    with suppress(PackageNotFoundError):
        if (other := version("live-board-client")) != __version__:
            at.warn("versions", f"live-board-client {other} wrote over modules of the server: install live-board alone")


def _check_network(at: _Examination, settings: Settings) -> None:
    """Check whether other machines can reach the server although its host names or its proxies are not configured."""
    if is_loopback(settings.host) and not settings.trusted_proxies:
        at.note("network", f"only this machine reaches {settings.host}")
        return
    if not settings.allowed_hosts:
        at.warn("network", "others may reach the server: name its hosts with LIVE_ALLOWED_HOSTS")
    elif "*" in settings.allowed_hosts and settings.open:
        at.warn("network", "any web page can send events (LIVE_OPEN, LIVE_ALLOWED_HOSTS=*): name the hosts")
    if not settings.trusted_proxies:
        at.warn("network", "behind a proxy, all clients share one address: name the proxy with LIVE_TRUSTED_PROXIES")


def _check_limits(at: _Examination, settings: Settings) -> None:
    """Compare the descriptors that this user may open with the connections that the server would take."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = settings.max_connections + settings.max_viewers + _SPARE
    if most != resource.RLIM_INFINITY and most < wanted:
        at.warn("limits", f"at most {most:,} descriptors, and {wanted:,} are wanted: raise `ulimit -Hn` or LimitNOFILE")
    else:
        at.note("limits", f"enough descriptors for {wanted:,} connections and files")


def _check_files(at: _Examination, settings: Settings) -> None:
    """Check who may read and write the data directory, and how much room its disk has."""
    folder = settings.data_dir
    if not folder.exists():
        at.note("files", f"{folder} does not exist yet; the first start makes it")
        return
    next(folder.iterdir(), None)  # raises an OSError if this user may not read the folder
    if folder.stat().st_mode & UMASK:
        at.warn("files", f"other users may read {folder}: chmod 700 {folder}")
    used = used_of(folder)
    if full := disk_fault(folder):
        at.blame("files", f"{full}. Make room on the disk of {folder}")
    elif used > 1 - _ROOM:
        at.warn("files", f"the disk of {folder} is {used:.0%} full")
    else:
        at.note("files", f"{folder} is readable, and {1 - used:.0%} of its disk is free")


async def _check_servers(at: _Examination, settings: Settings) -> None:
    """Ask the store and the journal's database."""
    embedded = EmbeddedStore(settings.data_dir)
    if settings.store or answers(embedded.socket):
        await _check_store(at, settings)
    elif is_locked(settings.data_dir):
        last = embedded.last_lines(1)
        at.blame("store", f"a server uses {settings.data_dir}, and its store does not answer: {' '.join(last)}")
    else:
        _find_server(at, settings, embedded.socket)
    with at.checking("journal"):
        database = open_journal(settings, writes=False)
        if database is None:
            at.warn("journal", "LIVE_JOURNAL is off: a lost store can't be rebuilt, and there is no past")
            return
        try:
            if database.is_sqlite and not database.path.exists():
                at.note("journal", f"{database.path} does not exist yet; the first start makes it")
                return
            for line in await unsafe_in_sql(database):
                at.warn("journal", line)
            at.note("journal", f"{database.place} answers")
        finally:
            await database.aclose()


def _find_server(at: _Examination, settings: Settings, own: Path) -> None:
    """Say that no server uses the data directory, and which other data directories have a server."""
    try:
        lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:  # a system without /proc
        lines = []
    words = [line.split() for line in lines]
    others = {Path(line[-1]).parent for line in words if line and Path(line[-1]).name == own.name} - {own.parent}
    if others:
        options = " or ".join(f"--data-dir {folder}" for folder in sorted(others))
        at.warn("store", f"no server uses {settings.data_dir}, but another one runs: give {options}")
    elif settings.data_dir.exists():
        at.warn("store", f"no server uses {settings.data_dir}, so its store was not asked: start the server first")
    else:
        at.note("store", f"no server uses {settings.data_dir}, so no store was asked")


async def _check_store(at: _Examination, settings: Settings) -> None:
    with at.checking("store"):
        async with opened_store(settings, start=False) as client:
            for line in await unsafe_settings(client):
                at.warn("store", line)
            place = shown(settings.store) if settings.store else f"the embedded store of {settings.data_dir}"
            for server, reply in await client.each("INFO", "server"):
                fields: dict[str, str] = {} if isinstance(reply, Exception) else info_fields(reply)
                name = "Valkey" if "valkey_version" in fields else "Redis"
                version = fields.get("valkey_version") or fields.get("redis_version", "of an unknown version")
                at.note("store", f"{server or place} answers: {name} {version}")
            for fault in (faults := await clock_faults(client)):
                at.warn("clock", fault)
            if not faults:
                at.note("clock", "the store and this machine have the same time")
            await _check_content(at, settings, client)


async def _check_content(at: _Examination, settings: Settings, client: Store) -> None:
    """Check that servers are alive, and that the store holds what they have seen in it and moved to the journal."""
    water, lost = client.high_water, list[str]()
    key = SystemKeys(settings.key_prefix).processes
    if count := await client.call(key, "HLEN", key):
        at.note("servers", f"live processes of servers: {count:,}")
    elif water.facts.store:
        at.warn("servers", f"no server uses the store with the prefix {settings.key_prefix} of store keys now")
    else:
        at.note("servers", f"no server uses the store with the prefix {settings.key_prefix} of store keys yet")
    if water.facts.store:  # otherwise the comparison would make this store the known one
        watch = LossWatch(client, settings.key_prefix)
        water.active = False  # this command changes nothing
        losses = await watch.find()
        lost = [*losses.store, *losses.boards.values()]
    database = open_journal(settings, writes=False)
    if database is not None and (not database.is_sqlite or database.path.exists()) and not lost:
        with suppress(JournalError):  # the check of the journal says so
            lost = [str(loss) for loss in await find_lost(client, settings.key_prefix, database)]
        await database.aclose()
    for line in lost:
        at.blame("store", f"the store lost data: {line}. Restore it, run `live rebuild`, or accept the loss")
    if not lost:
        at.note("store", "the store holds what is known of it")
