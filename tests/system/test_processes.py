"""What a worker process sets up for itself."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.errors import SetupError
from live.settings import Settings, environment_name, load_settings
from live.system.processes import RESERVED, SHARED_LIMITS, fit, raise_limit, share
from tests.harness.settings import as_environment

COUNTS = st.integers(1, 100_000)

ENDED_WHILE_COLLECTING = """
import os, signal, sys, threading, time
from live.system.processes import relax_collector

signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))

class Cycle:
    def __init__(self):
        self.itself = self
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)

if sys.argv[1] == "two":
    threading.Thread(target=time.sleep, args=(0.2,)).start()
Cycle()
relax_collector()
print("the signal was lost")
"""


RESTARTED = """
import asyncio, os, resource, signal
from multiprocessing import forkserver
from live.system import processes

processes.CHILDREN.set_forkserver_preload([])
processes._FORK_SERVER_PAUSE = 0.1
processes.start_fork_server()

def running():
    return forkserver._forkserver._forkserver_pid

async def test():
    processes.keep_fork_server()
    for _ in range(2):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        os.kill(before := running(), signal.SIGKILL)
        await asyncio.sleep(0.3)
        assert running() is None, running()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        while running() in (None, before):
            await asyncio.sleep(0.01)

asyncio.run(test())
"""

SHORTENED = """
from live.system.processes import CHILDREN, shorten_temporary_paths

shorten_temporary_paths()
child = CHILDREN.Process(target=print, args=("a child",))
child.start()
child.join()
"""


@pytest.mark.parametrize("threads", ["one", "two"])
def test_a_signal_during_garbage_collection_is_not_lost(threads: str) -> None:
    """An exception that the signal's handler raises inside a destructor would be dropped, and the process would go on.

    The system gives the signal to any thread that does not block it.
    """
    command = [sys.executable, "-c", ENDED_WHILE_COLLECTING, threads]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_a_long_path_of_temporary_files_is_no_obstacle(tmp_path: Path) -> None:
    """The kernel allows 107 bytes for the path of the fork server's socket.

    The log names the folder that is not used.
    """
    long = tmp_path / ("t" * 100)
    long.mkdir()
    environment = {**os.environ, "TMPDIR": str(long)}
    done = subprocess.run(
        [sys.executable, "-c", SHORTENED], capture_output=True, text=True, check=False, env=environment
    )
    logged, child = done.stdout.splitlines()
    assert (done.returncode, child, str(long) in logged) == (0, "a child", True), done.stderr
    assert not list(long.iterdir())


def test_a_fork_server_that_can_not_start_is_tried_again() -> None:
    """The server starts another fork server each time that a fork server ends by itself."""
    done = subprocess.run([sys.executable, "-c", RESTARTED], capture_output=True, text=True, check=False, timeout=180)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("the fork server has ended by itself") == 2
    assert 2 <= done.stdout.count("the fork server can't start") <= 12, (
        "the fork server was started again without a pause, or never"
    )


@given(connections=COUNTS, viewers=st.integers(0, 100_000), available=st.integers(300, 200_000))
def test_connections_and_viewers_leave_what_is_reserved(connections: int, viewers: int, available: int) -> None:
    """Limits that already fit stay unchanged, and no limit becomes zero, whatever the limits are."""
    asked = Settings(max_connections=connections, max_viewers=viewers)
    fitted = fit(asked, available)
    budget = available - RESERVED
    assert fitted.max_connections + fitted.max_viewers <= budget
    assert fitted.max_connections >= min(connections, budget // 2)
    assert fitted.max_viewers >= min(viewers, budget // 2)
    if connections + viewers <= budget:
        assert fitted == asked


def test_too_few_descriptors_are_a_mistake_of_the_setup() -> None:
    """The message says how many are needed, and how to get them."""
    with pytest.raises(SetupError, match=r"may open 100 files, and needs \d+: raise the limit"):
        fit(Settings(), 100)


def test_a_fitted_setting_changes_nothing_else() -> None:
    """Only the two limits are lowered."""
    asked = Settings(port=1234)
    fitted = fit(asked, 1024)
    assert msgspec.structs.replace(fitted, max_connections=4096, max_viewers=20_000) == asked


def test_limits_are_divided_by_the_number_of_workers() -> None:
    """Each share is rounded up, and is at least the smallest value that the setting allows. Other settings stay."""
    asked = Settings(workers=4, max_viewers=10, max_unanswered=100_000, max_boards=100)
    shared = share(asked)
    assert (shared.max_viewers, shared.max_unanswered) == (3, 65536)
    assert shared.max_connections == 1024
    kept = {name for name in Settings.__struct_fields__ if getattr(shared, name) == getattr(asked, name)}
    assert kept >= set(Settings.__struct_fields__) - set(SHARED_LIMITS)
    one = Settings(max_viewers=10)
    assert share(one) is one
    assert load_settings(as_environment(shared)) == shared


def test_the_documentation_names_the_limits_that_are_divided() -> None:
    """Before its table, `docs/settings.md` names all limits that are divided."""
    text = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8").partition("| variable")[0]
    assert {environment_name(name) for name in SHARED_LIMITS} <= set(re.findall(r"LIVE_\w+", text))


def test_a_process_may_open_as_many_files_as_the_system_allows() -> None:
    """The soft limit is raised to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard) - 1, hard))
    try:
        assert raise_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
