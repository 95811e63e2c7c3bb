"""The ranking of a board at an instant, computed from its contents."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping

import msgspec

from live.domain.board import Board, Rules
from live.domain.window import EVER, Sliding
from live.journal.state.snapshot import NEVER, Logged, Reached, Snapshot


class Ranked(msgspec.Struct, frozen=True):
    """A ranking: the start of its period (None if the board has no periods), the scores, and the members in order."""

    period: int | None
    scores: Mapping[str, int]
    members: list[str]


class Scores(msgspec.Struct, frozen=True):
    """The scores at a time, including the scores of hidden members."""

    period: int | None  # the start of the period of the scores; None if the board has no periods
    scores: Mapping[str, int]  # the score of each member
    reached: Mapping[str, Reached]  # the tags of members
    spread: Mapping[int, int] | None = None  # how many members have each score, if that is known

    def ranked(self, board: Board, hidden: Container[str]) -> Ranked:
        """Return the ranking without hidden members."""
        shown = [member for member in self.scores if member not in hidden]
        return Ranked(self.period, self.scores, sorted(shown, key=self._order(board)))

    def ranks(self, board: Board, hidden: Collection[str], members: Iterable[str]) -> dict[str, int]:
        """Return the ranks of some members, without sorting all members."""
        # Count how many members have each score, without hidden members.
        spread = Counter(self.scores.values()) if self.spread is None else Counter(self.spread)
        spread.subtract(self.scores[member] for member in hidden if member in self.scores)
        spread, key = +spread, self._order(board)
        found = {}
        for member in members:
            own = self.scores.get(member)
            if own is None or member in hidden:
                continue
            ahead = [score for score in spread if (score < own if board.reading == "forward" else score > own)]
            found[member] = 1 + (len(ahead) if board.ranks == "dense" else sum(spread[score] for score in ahead))
            if board.ranks == "ordinal" and spread[own] > 1:
                place = key(member)
                equal = [other for other, score in self.scores.items() if score == own and other not in hidden]
                found[member] += sum(key(other) < place for other in equal)
        return found

    def _order(self, board: Board) -> Callable[[str], tuple[int | str, ...]]:
        return order_of(board.rules, self.scores, self.reached)


def ranked_at(
    board: Board, data: Snapshot, now: int, period: int | None = None, hidden: Container[str] | None = None
) -> Ranked:
    """Return the ranking at a time and of a period, as for `scores_at`. `hidden` replaces the members hidden then."""
    return scores_at(board, data, now, period).ranked(board, data.hidden if hidden is None else hidden)


def scores_at(board: Board, data: Snapshot, now: int, period: int | None = None) -> Scores:
    """Return the scores at a time (milliseconds since 1970), which must not be before the last entry.

    If the board has a ranking for each period, `period` is the start of a period. None means the current period.
    """
    suffix = ""
    if board.window.tables:
        period = newest_slot(board, data, now) if period is None else period
        suffix = f":{period}"
    scores = scores_of(board, live_slots(board, data, now, period))
    reached: Mapping[str, Reached] = data.rankings[suffix].reached if suffix in data.rankings else {}
    return Scores(period, scores, reached)


def newest_slot(board: Board, data: Snapshot, now: int) -> int | None:
    """Return the start of the newest slot at a time. Return None if the board has an event clock but no event yet."""
    if board.clock == "event":
        return data.newest
    return board.window.slot_at(now // 1000).start


def live_slots(board: Board, data: Snapshot, now: int, period: int | None = None) -> Mapping[int, Mapping[str, int]]:
    """Return the amounts of members in each slot that counts at a time: while any part of it is in the window (I2)."""
    newest = newest_slot(board, data, now)
    if isinstance(board.window, Sliding):
        return {
            EVER.start: summed(
                ((event.member, event.amount) for event in live_events(board, data, now)), zeros=board.zeros
            )
        }
    if newest is None:
        return {}
    if board.window.tables:
        wanted = newest if period is None else period
        return {wanted: data.slots.get(wanted, {})}
    oldest = board.window.oldest(newest)
    return {start: slot for start, slot in data.slots.items() if start >= oldest}


def live_events(board: Board, data: Snapshot, now: int) -> list[Logged]:
    """Return the events that are in a sliding window at a time. Boards with another window have none."""
    if not isinstance(board.window, Sliding):
        return []
    moment = now if board.clock == "server" else data.latest or 0
    return [event for event in data.log if event.time > moment - board.window.length * 1000]


def scores_of(board: Board, slots: Mapping[int, Mapping[str, int]]) -> Mapping[str, int]:
    """Add up the amounts of each member, including hidden members."""
    if len(slots) == 1:
        return next(iter(slots.values()))
    return summed((item for slot in slots.values() for item in slot.items()), zeros=board.zeros)


def summed(amounts: Iterable[tuple[str, int]], *, zeros: bool) -> dict[str, int]:
    """Add up the amounts of each member. Without `zeros`, a sum of zero is no score."""
    sums: dict[str, int] = {}
    for member, amount in amounts:
        sums[member] = sums.get(member, 0) + amount
    return sums if zeros else {member: score for member, score in sums.items() if score}


def order_of(
    rules: Rules, scores: Mapping[str, int], reached: Mapping[str, Reached]
) -> Callable[[str], tuple[int | str, ...]]:
    """Return the function that gives the sort key of a member: the member of the first record has the smallest key.

    Names sort like their UTF-8 bytes. Tags sort by time, offset and number. Depending on the board, tags rise or fall
    with time, and the ranking is read forward or backward. Just after a slot has left the window, members may have
    no tag yet: then names decide.
    """
    by_score = 1 if rules.order == "forward" else -1
    if rules.ties is None:
        return lambda member: (by_score * scores[member], member)
    by_tag = by_score * (1 if rules.ties == "rising" else -1)

    def key(member: str) -> tuple[int | str, ...]:
        time, offset, number = reached.get(member, NEVER)
        return by_score * scores[member], by_tag * time, by_tag * offset, by_tag * number, member

    return key
