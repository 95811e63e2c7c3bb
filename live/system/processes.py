"""The setup of a process: its limits, its end with its parent, and its garbage collection."""

import asyncio
import ctypes
import gc
import os
import resource
import signal
import tempfile
import threading
from multiprocessing import forkserver, get_context, parent_process
from typing import Final

import msgspec
import structlog

from live.errors import SetupError
from live.settings import METAS, Settings

SHARED_LIMITS: Final = ("max_connections", "max_unanswered", "max_viewers", "max_board_viewers", "read_rate")
# File descriptors that are kept for the store, listeners, files, pipes, refused connections and health checks.
RESERVED: Final = 144
# This context starts the other processes of a server. A process of this context is forked from a fork server that has
# imported everything, so it starts in milliseconds. A new interpreter would import for half a second. This process
# can't be forked itself, because it has threads.
CHILDREN: Final = get_context("forkserver")
CHILDREN.set_forkserver_preload(["live.process.preloaded"])
_LONGEST_FOLDER: Final = 60  # bytes; the path of a socket in it has up to 40 bytes more, and the kernel allows 107
_LEAST: Final = 64  # descriptors for connections and viewers; with fewer, the server does not start
_FORK_SERVER_PAUSE: Final = 1.0  # seconds
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)  # loaded here, because it can't be loaded between fork and exec

log = structlog.get_logger()


def end_with_parent(parent: int) -> None:
    """Ask the kernel to send this process SIGTERM when the thread that started it ends for any reason.

    `parent` is the process id of the parent, which may have ended before the kernel was asked.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def shorten_temporary_paths() -> None:
    """Let this process and its children use `/tmp` if the path of their temporary folder is too long for sockets."""
    if len(os.fsencode(long := tempfile.gettempdir())) > _LONGEST_FOLDER:
        os.environ["TMPDIR"], tempfile.tempdir = "/tmp", None  # noqa: S108 - folders in it have random names
        log.warning("temporary files go to /tmp, because sockets need a short path", instead_of=long)
    if len(os.fsencode(folder := tempfile.gettempdir())) > _LONGEST_FOLDER:
        raise SetupError(
            f"the path {folder} is too long for the sockets between processes: set TMPDIR to a folder with a path of "
            f"at most {_LONGEST_FOLDER} bytes that the server can write to"
        )


def start_fork_server() -> None:
    """Start the fork server of `CHILDREN` early, before the first process is needed.

    This fork server ignores a SIGTERM to all processes of the server, because it reports how the other processes end.
    It ends after the last of these processes.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # the new process inherits this
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def keep_fork_server() -> None:
    """Start another fork server whenever the fork server of this process ends, while the event loop runs.

    The processes of the ended fork server go on. Their exit status is unknown, and shown as 255. If a fork server ends
    early or can't start, wait a moment before the next start.
    """
    process: int | None = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined] # noqa: SLF001
    assert process is not None, "start it first"  # noqa: S101
    loop, ended = asyncio.get_running_loop(), os.pidfd_open(process)
    early_until = loop.time() + _FORK_SERVER_PAUSE

    def replace() -> None:
        loop.remove_reader(ended)
        os.close(ended)
        log.error("the fork server has ended by itself, and another one starts", pid=process)
        loop.call_later(_FORK_SERVER_PAUSE if loop.time() < early_until else 0, start)

    def start() -> None:
        try:
            start_fork_server()
            keep_fork_server()
        except OSError as error:
            log.error("the fork server can't start, and is tried again", reason=str(error))  # noqa: TRY400
            loop.call_later(_FORK_SERVER_PAUSE, start)

    loop.add_reader(ended, replace)


def follow_parent() -> None:
    """End this process of `CHILDREN` by SIGTERM when the process that asked for it ends for any reason.

    `end_with_parent` can't do this, because the kernel takes the fork server for the parent.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    parent = parent_process()
    assert parent is not None, "a process starts this one"  # noqa: S101

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="follow-parent", daemon=True).start()


def return_memory() -> None:
    """Give free memory back to the system. Otherwise glibc would keep the space of large blocks that were freed."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


def relax_collector() -> None:
    """Exclude objects that live as long as the process from garbage collection, and collect less often.

    A request creates hardly any reference cycles. With the defaults, collection takes an eighth of the time of a POST.
    A signal that arrives meanwhile is raised again afterwards, because an exception of its handler would be dropped
    inside a destructor. Blocking signals would not help: another thread would receive them.
    """
    arrived: list[int] = []
    ending = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _frame: arrived.append(number)) for number in ending]
    try:
        gc.collect()
    finally:
        for number, handler in zip(ending, before, strict=True):
            signal.signal(number, handler)
    for signalled in arrived:
        signal.raise_signal(signalled)
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def raise_limit() -> int:
    """Raise the soft limit on this process's open files to the hard limit. Return the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def share_of(limit: int, workers: int) -> int:
    """Return the share of one worker in a limit, rounded up."""
    return -(-limit // workers)


def share(settings: Settings) -> Settings:
    """Divide the limits for clients by the number of workers, so that they apply to all workers together.

    No limit falls below the least value that its setting allows.
    """
    if settings.workers == 1:
        return settings
    shares = {
        name: max(METAS[name].ge or 0, share_of(getattr(settings, name), settings.workers)) for name in SHARED_LIMITS
    }
    return msgspec.structs.replace(settings, **shares)


def fit(settings: Settings, available: int) -> Settings:
    """Lower the limits on connections and viewers, so that descriptors remain for the store and for health checks.

    Connections get up to half of the descriptors, or more if viewers need fewer. Viewers get the rest.
    """
    budget = available - RESERVED
    if budget < _LEAST:
        raise SetupError(
            f"a process may open {available} files, and needs {available - budget + _LEAST}: raise the limit, for "
            "example with `ulimit -n 65536`, LimitNOFILE= in a systemd unit, or `ulimits` in compose"
        )
    if settings.max_connections + settings.max_viewers <= budget:
        return settings
    connections = min(settings.max_connections, max(budget // 2, budget - settings.max_viewers))
    viewers = min(settings.max_viewers, budget - connections)
    return msgspec.structs.replace(settings, max_connections=connections, max_viewers=viewers)
