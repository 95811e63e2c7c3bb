"""What a worker process sets up for itself."""

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.errors import SetupError
from live.settings import Settings
from live.system.processes import RESERVED, fit

COUNTS = st.integers(1, 100_000)

ENDED_WHILE_COLLECTING = """
import os, signal, sys
from live.system.processes import relax_collector

signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))

class Cycle:
    def __init__(self):
        self.itself = self
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(1000))

Cycle()
relax_collector()
print("the signal was lost")
"""


def test_a_signal_during_garbage_collection_is_not_lost() -> None:
    """An exception that its handler raises inside a destructor would be dropped, and the process would stay."""
    done = subprocess.run([sys.executable, "-c", ENDED_WHILE_COLLECTING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


@given(connections=COUNTS, viewers=st.integers(0, 100_000), available=st.integers(300, 200_000))
def test_connections_and_viewers_leave_what_is_reserved(connections: int, viewers: int, available: int) -> None:
    """Any limits are possible. Limits that fit stay unchanged, and neither becomes zero."""
    asked = Settings(max_connections=connections, max_viewers=viewers)
    fitted = fit(asked, available)
    budget = available - RESERVED - asked.store_connections
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
