"""A pytest plugin: measures coverage in each worker, so that each covered line names its tests.

`MUTATE_SOURCE` is the folder to measure, and `MUTATE_DATA` is the path, without its suffix, of each worker's data. The
file `apart` beside it lists the files whose tests also run Python in other processes, which nobody measures.
"""

import os
import sys
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Final

import pytest
from coverage import Coverage

# These are not the settings of `make coverage`, which also measure processes that the tests start.
_COVERAGE: Final = Coverage(
    data_file=os.environ["MUTATE_DATA"],
    data_suffix=True,
    source=[os.environ["MUTATE_SOURCE"]],
    concurrency=["thread", "greenlet"],  # SQLAlchemy runs functions in greenlets
    config_file=False,
)
# The process that distributes the tests runs no code of the package.
_COVERAGE.set_option("run:disable_warnings", ["no-data-collected"])
_COVERAGE.start()  # this must happen before the tests import anything


def _note(event: str, arguments: tuple[object, ...]) -> None:
    """Note the file of the running test if the test starts or forks a Python process, also through the fork server."""
    if event not in {"subprocess.Popen", "os.fork", "os.posix_spawn", "socket.connect"}:
        return
    if event == "socket.connect":
        starts = arguments[1] == getattr(forkserver, "_forkserver")._forkserver_address  # noqa: B009
    else:
        starts = event == "os.fork" or any(name in str(arguments[:2]) for name in ("python", "live"))
    if starts and (test := os.environ.get("PYTEST_CURRENT_TEST")):
        with Path(os.environ["MUTATE_DATA"]).with_name("apart").open("a") as apart:
            apart.write(f"{test.partition('::')[0]}\n")


sys.addaudithook(_note)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Attribute what runs from now on to a test. Fixtures of a module belong to its first test."""
    _COVERAGE.switch_context(item.nodeid)
    return (yield)


def pytest_unconfigure() -> None:
    """Write what was measured."""
    _COVERAGE.stop()
    _COVERAGE.save()
