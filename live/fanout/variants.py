"""The variants of a channel: one for each size and interval that viewers watch."""

from collections.abc import Iterator

from live.domain.board import Board
from live.domain.ranking import Page
from live.fanout.history import History
from live.fanout.subscription import Subscription
from live.fanout.variant import Variant


class Variants:
    """The variants that have viewers, and the history of pages that they share.

    `interval` is the minimum time between two frames of the board, in milliseconds.
    """

    def __init__(self, board: Board, default_interval: float, history_size: int, totals_interval: float) -> None:
        """Serve a board. Intervals are in seconds; the default applies to boards without an interval of their own."""
        self._board = board
        self._default = default_interval
        self._totals_interval = round(totals_interval * 1000)
        self.interval = _interval_of(board, default_interval)
        self._history = History(history_size)
        self._variants: dict[tuple[int, int], Variant] = {}

    def __iter__(self) -> Iterator[Variant]:
        """All variants."""
        return iter(self._variants.values())

    @property
    def are_settled(self) -> bool:
        """Whether no variant waits for a tick."""
        return all(variant.due is None for variant in self)

    @property
    def next_due(self) -> int | None:
        """When the next variant is due, in milliseconds of the loop's clock; None if none is."""
        return min((variant.due for variant in self if variant.due is not None), default=None)

    def find(self, subscription: Subscription) -> Variant | None:
        """The variant of a subscription, or None if it has no viewers."""
        return self._variants.get((subscription.size, subscription.pace(self.interval)))

    def find_or_add(self, subscription: Subscription) -> Variant:
        """The variant of a subscription, created if necessary."""
        variant = self.find(subscription)
        if variant is None:
            interval = subscription.pace(self.interval)
            variant = Variant(
                self._board.id, subscription.size, interval, self._history, self._board.ranks, self._totals_interval
            )
            self._variants[subscription.size, interval] = variant
        return variant

    def remove(self, variant: Variant) -> None:
        """Remove a variant without viewers."""
        del self._variants[variant.size, variant.interval]

    def take_due(self, now: int) -> list[Variant]:
        """Take the variants that are due. They are then no longer due, until something marks them again."""
        taken = [variant for variant in self if variant.due is not None and variant.due <= now]
        for variant in taken:
            variant.due, variant.totals.are_held = None, False
        return taken

    def keep(self, page: Page) -> None:
        """Add a page to the history for viewers that reconnect."""
        self._history.add(page)

    def renew(self, board: Board) -> None:
        """Replace the definition of the board: every viewer receives a sync."""
        before, self.interval = self.interval, _interval_of(board, self._default)
        self._board = board
        for variant in self:
            variant.interval = variant.interval // before * self.interval
        self._variants = {(variant.size, variant.interval): variant for variant in self}
        self.forget()

    def forget(self) -> None:
        """Forget everything that was read: every viewer receives a sync, and none resumes from an earlier position."""
        self._history.clear()
        for variant in self:
            variant.forget(self._board.ranks)


def _interval_of(board: Board, default: float) -> int:
    """The minimum time between two frames of a board, in milliseconds."""
    return max(1, round(default * 1000)) if board.conflation is None else board.conflation
