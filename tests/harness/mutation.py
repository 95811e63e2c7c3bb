"""Runs mutants: code with a deliberate mistake, which an assertion of a test must catch.

A mutant that does not compile, or that makes the store return an error, proves nothing about the test that runs it. So
the store compiles each mutant script first, and only a failed assertion in `tests/` counts as a catch. Errors of the
store, timeouts and failed assertions of the program itself fail the test.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

import msgspec
import pytest
from hypothesis.errors import FlakyFailure, FlakyStrategyDefinition

from live.store.connection.scripts import Script
from tests.harness.topologies import plain_client
from tests.harness.waiting import impatient

_R = TypeVar("_R", bound=msgspec.Struct)
_TESTS = Path(__file__).parents[1]


class Mutant(NamedTuple):
    """A mistake in a script: `wrong` replaces `right`."""

    script: str
    right: str
    wrong: str


def mutated(source: str, changes: Mapping[str, str]) -> str:
    """Replace pieces of a source, each of which occurs exactly once."""
    for right, wrong in changes.items():
        if source.count(right) != 1:  # an assertion error here would look as if a test had caught the mutant
            raise ValueError(f"{right!r} occurs {source.count(right)} times in the script, not once")
        source = source.replace(right, wrong)
    return source


def compiled(store: str, script: Script[_R]) -> Script[_R]:
    """Return a script that the store has compiled."""
    with plain_client(store) as client:
        client.script_load(script.source)
    return script


@contextmanager
def must_be_caught(mistake: str) -> Iterator[None]:
    """Fail unless a test's assertion fails in the body, which runs a mutant. Other errors are raised."""
    try:
        with impatient():
            yield
    except AssertionError as error:
        if not _is_of_a_test(error):
            raise
    except FlakyFailure as group:
        # The code draws random bytes, so the same steps need not fail twice. Each failure must be a failed assertion.
        if not all(isinstance(error, AssertionError) and _is_of_a_test(error) for error in group.exceptions):
            raise
    except FlakyStrategyDefinition as flaky:
        # Because of random bytes, steps that passed in an earlier run have failed now.
        failed = flaky.__context__
        if not (isinstance(failed, AssertionError) and _is_of_a_test(failed)):
            raise
    else:
        pytest.fail(f"no test notices this mistake: {mistake}")


@contextmanager
def replaced(owner: object, name: str, mutant: Callable[..., object]) -> Iterator[None]:
    """Put a mutant in place of a function of a class or module while in the context, in which it must be called."""
    right = getattr(owner, name)
    called = False

    @wraps(right)
    def wrong(*arguments: Any, **named: Any) -> object:
        nonlocal called
        called = True
        return mutant(*arguments, **named)

    with patch.object(owner, name, wrong):
        try:
            yield
        finally:
            if not called:
                raise RuntimeError(f"nothing called {name}")


def _is_of_a_test(error: AssertionError) -> bool:
    trace = error.__traceback__
    assert trace is not None, "the error has no traceback"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return Path(trace.tb_frame.f_code.co_filename).is_relative_to(_TESTS)
