"""One refresh of a channel: the variants it serves, and the page that it shows or the number of records it reads."""

from collections.abc import Sequence

from live.domain.ranking import Page
from live.fanout.variant import Variant


class Tick:
    """A refresh in progress. Read `size` records, and pass them to `Channel.take`; if `size` is 0, pass `page`.

    `page` is None where nothing but announcements is due. `number` counts the reads of the channel. `reported_at` is
    when the first change that it shows was reported, or None. `is_outdated` is set if the board is redefined meanwhile,
    because what was read then has another meaning.
    """

    __slots__ = ("is_outdated", "number", "page", "reported_at", "size", "variants")

    def __init__(self, variants: Sequence[Variant], number: int, reported_at: float | None) -> None:
        self.variants = variants
        self.size = 0
        self.page: Page | None = None
        self.number = number
        self.reported_at = reported_at
        self.is_outdated = False
