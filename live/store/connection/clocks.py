"""Compare the clocks of the store's servers with the clock of this machine."""

import time
from typing import Any, Final

from live.store.connection.client import Store

_APART: Final = 1.0  # seconds by which clocks may differ


async def clock_faults(client: Store) -> list[str]:
    """Return a sentence for each server of the store whose clock differs."""
    before = time.time()
    told = await client.each("TIME")
    after = time.time()
    faults = [(server, clock_fault(reply, before, after)) for server, reply in told]
    return [f"{server}: {fault}" if server else fault for server, fault in faults if fault]


def clock_fault(told: Any, before: float, after: float) -> str:  # noqa: ANN401 - any reply
    """Return a sentence if the reply to TIME, asked `before` and received `after`, differs from this machine's clock.

    Return an empty text if they agree, or if the reply is an error.
    """
    if isinstance(told, Exception):
        return ""
    seconds = int(told[0]) + int(told[1]) / 1e6
    ahead = seconds - after if seconds > after else min(seconds - before, 0)
    if abs(ahead) <= _APART:
        return ""
    return (
        f"the clock of the store is {abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine, "
        "and it decides which events are `early` or `late`: let NTP set both"
    )
