"""Random boards whose past changes, against a plain count of everything that they have accepted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from live.journal.log.entries import Head
from live.journal.state import fold
from live.journal.state.taken import SentBetween
from tests.harness.board_machine import FREE
from tests.harness.clock import with_time_of
from tests.harness.machines import run_machine, run_mutant
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.past_machine import CLOCK, PastMachine
from tests.harness.store import StoreProcess


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_board_is_what_a_plain_count_says(volatile_store: StoreProcess, tmp_path: Path, effort: int) -> None:
    """Whatever is taken back, counted by other rules, set back, repaired or recovered."""
    with with_time_of(CLOCK):
        run_machine(lambda: PastMachine(volatile_store, tmp_path), examples=40 * effort, steps=20)


def _one_late(sent: SentBetween, head: Head) -> bool:
    """The mutant forgets the last entry that a void names."""
    return sent.since <= head.time < int(sent.last.split(" ")[1])


MUTANTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "a void leaves the last events out": (SentBetween, "has", _one_late),
    "a void does not look at votes that it makes impossible": (fold, "_without_impossible", lambda batch, _: batch),
}
FOCUS: dict[str, dict[str, Any]] = {
    "a void does not look at votes that it makes impossible": {
        "window": "forever",
        "operator": "incr",
        "votes": {"per_key": 1, "per_actor": 2, "registered": False},
    },
}


@pytest.mark.mutant
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_past_is_detected(name: str, volatile_store: StoreProcess, tmp_path: Path) -> None:
    """Each mutant breaks a rule of the fold, on which the store and its journal agree."""
    owner, function, wrong = MUTANTS[name]
    with with_time_of(CLOCK), must_be_caught(name), replaced(owner, function, wrong):
        run_mutant(lambda: PastMachine(volatile_store, tmp_path, FOCUS.get(name, FREE)), examples=300, steps=20)
