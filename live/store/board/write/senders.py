"""Which producer sent each part of a batch: the journal keeps it, so that an operator can void what one sent."""

from collections.abc import Sequence
from itertools import chain, repeat

Senders = Sequence[tuple[str, int]]
"""The pieces of a batch in order: the id of the producer of each, and how many entries it has."""


def number_senders(senders: Senders) -> tuple[list[str], list[int]]:
    """The producers of a batch, and for each entry the number of its producer among them; nothing if there is only one.

    Almost all batches come from one producer, so they cost nothing more than its name.
    """
    names = list(dict.fromkeys([name for name, _ in senders]))
    if len(names) <= 1:
        return names, []
    numbers = {name: number for number, name in enumerate(names)}
    return names, list(chain.from_iterable(repeat(numbers[name], count) for name, count in senders))
