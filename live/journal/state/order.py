"""The order of the records of a ranking, as the sorted set of the store has it."""

from collections.abc import Callable, Mapping

from live.journal.log.entries import Rules
from live.journal.state.snapshot import Reached

_NEVER: Reached = (0, 0)


def order_of(
    rules: Rules, scores: Mapping[str, int], reached: Mapping[str, Reached]
) -> Callable[[str], tuple[int, int, int] | tuple[int, str]]:
    """The key by which members sort, the first record first.

    Names sort like their UTF-8 bytes. Tags sort by offset and number: they rise with time, or fall, and a ranking is
    read forward or backward.
    """
    by_score = 1 if rules.order == "forward" else -1
    if rules.ties is None:
        return lambda member: (by_score * scores[member], member)
    by_tag = by_score * (1 if rules.ties == "rising" else -1)

    def key(member: str) -> tuple[int, int, int]:
        offset, number = reached.get(member, _NEVER)
        return by_score * scores[member], by_tag * offset, by_tag * number

    return key
