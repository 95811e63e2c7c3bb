"""A pytest plugin: tells coverage which test runs, so that each covered line names its tests."""

from collections.abc import Iterator

import pytest
from coverage import Coverage


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Attribute what runs from now on to a test. Fixtures of a module belong to its first test."""
    current = Coverage.current()
    if current is not None:
        current.switch_context(item.nodeid)
    return (yield)
