"""One refresh of a channel: which variants it serves, how many records it reads, and which changes it shows."""

from collections.abc import Sequence

from live.fanout.variant import Variant


class Tick:
    """A refresh in progress. Read `size` records (none for 0), and pass them to `Channel.finish`.

    `number` counts the reads of the channel. `heard_at` is when the first change that it shows was heard, None when
    there was none. `is_outdated` is set when the board is redefined meanwhile: what was read has another meaning then.
    """

    __slots__ = ("heard_at", "is_outdated", "number", "size", "variants")

    def __init__(self, variants: Sequence[Variant], number: int, heard_at: float | None) -> None:
        self.variants = variants
        self.size = max((variant.size for variant in variants), default=0)
        self.number = number
        self.heard_at = heard_at
        self.is_outdated = False
