"""Mistakes in scripts, on purpose: each must be caught by an assertion of a test, and by nothing else.

A mutant that the store can't compile, or that makes the store answer with an error, proves nothing about the test that
meets it. So a mutant is loaded into the store first, and only an assertion that stands in `tests/` counts as a catch:
errors of the store, timeouts and assertions of the program itself go through.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import redis
from hypothesis.errors import FlakyFailure

from live.store.connection.scripts import Script

_TESTS = Path(__file__).parents[1]


class Mutant(NamedTuple):
    """A mistake to make in a script: what stands in place of what."""

    script: str
    right: str
    wrong: str


def mutated(source: str, changes: Mapping[str, str]) -> str:
    """A source with pieces replaced, each of which stands in it once."""
    for right, wrong in changes.items():
        assert source.count(right) == 1, f"{right!r} stands {source.count(right)} times in the script, not once"
        source = source.replace(right, wrong)
    return source


def compiled(store: str, script: Script) -> Script:
    """The script, after the store has compiled it.

    Raises:
        redis.ResponseError: it does not compile.
    """
    with redis.Redis.from_url(store) as client:
        client.script_load(script.source)
    return script


def is_caught(run: Callable[[], object]) -> bool:
    """Whether a run on a mutant ends with an assertion of a test. Any other error is raised: the mutant is no good."""
    try:
        run()
    except AssertionError as error:
        if not _is_of_a_test(error):
            raise
        return True
    except FlakyFailure as group:
        # The same steps did not fail twice, as where random bytes decide: each failure has to be an assertion.
        if not all(isinstance(error, AssertionError) and _is_of_a_test(error) for error in group.exceptions):
            raise
        return True
    return False


def _is_of_a_test(error: AssertionError) -> bool:
    """Whether the assertion that failed stands in a file of the tests."""
    trace = error.__traceback__
    assert trace is not None, "an error that was raised has a traceback"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return Path(trace.tb_frame.f_code.co_filename).is_relative_to(_TESTS)
