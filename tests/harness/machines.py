"""State machines of Hypothesis that drive the real scripts of a store."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.harness.store import StoreProcess

_CALM: Final = settings(deadline=None, suppress_health_check=list(HealthCheck))


class StoreMachine(RuleBasedStateMachine):
    """A machine with an event loop and a client of a store, which it closes at the end."""

    def __init__(self, store: StoreProcess) -> None:
        super().__init__()
        self.store = store
        self.loop: asyncio.AbstractEventLoop | None = None  # hypothesis may end a machine before its first rule
        self.client: Any = None

    def run(self, work: Awaitable[Any]) -> Any:
        """Run a coroutine to its end."""
        assert self.loop is not None
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        """Close everything that the machine opened."""
        if self.loop is None:
            return
        try:
            if self.client is not None:
                self.run(self.client.aclose())
        finally:
            self.loop.close()


def run_machine(make: Callable[[], StoreMachine], *, examples: int, steps: int) -> None:
    """Run a machine on random schedules, and shrink a schedule that fails."""
    _run(make, settings(_CALM, max_examples=examples, stateful_step_count=steps))


def run_mutant(make: Callable[[], StoreMachine], *, examples: int, steps: int) -> None:
    """Run a machine with a mutant on the same schedules each time, until the first failure."""
    chosen = settings(
        _CALM,
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        print_blob=False,
    )
    _run(make, chosen)


def _run(make: Callable[[], StoreMachine], chosen: settings) -> None:
    run_state_machine_as_test(cast("Any", make), settings=chosen)
