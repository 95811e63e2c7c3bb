"""A pytest plugin: measures coverage in each worker, so that each covered line names its tests.

`MUTATE_SOURCE` names the folder to measure, and `MUTATE_DATA` where the data of each worker begins.
"""

import os
from collections.abc import Iterator
from typing import Final

import pytest
from coverage import Coverage

# Not the settings of `make coverage`, which also measure other processes.
_COVERAGE: Final = Coverage(
    data_file=os.environ["MUTATE_DATA"],
    data_suffix=True,
    source=[os.environ["MUTATE_SOURCE"]],
    concurrency=["thread", "greenlet"],  # SQLAlchemy runs functions in greenlets
    config_file=False,
)
_COVERAGE.set_option("run:disable_warnings", ["no-data-collected"])  # of the process that only distributes tests
_COVERAGE.start()  # before the tests import anything


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Attribute what runs from now on to a test. Fixtures of a module belong to its first test."""
    _COVERAGE.switch_context(item.nodeid)
    return (yield)


def pytest_unconfigure() -> None:
    """Write what was measured."""
    _COVERAGE.stop()
    _COVERAGE.save()
