"""One refresh of a channel: the variants it serves, and the number of records it reads."""

from collections.abc import Sequence

from live.fanout.variant import Variant


class Tick:
    """A refresh in progress. Read `size` records, and pass them to `Channel.take`.

    `size` is 0 where nothing but announcements is due: then read nothing, and pass None. `number` counts the reads of
    the channel. `reported_at` is when the first change that it shows was reported, or None. `is_outdated` is set if the
    board is redefined meanwhile, because what was read then has another meaning.
    """

    __slots__ = ("is_outdated", "number", "reported_at", "size", "variants")

    def __init__(self, variants: Sequence[Variant], number: int, reported_at: float | None) -> None:
        self.variants = variants
        self.size = max((variant.size for variant in variants), default=0)
        self.number = number
        self.reported_at = reported_at
        self.is_outdated = False
