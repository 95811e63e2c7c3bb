"""Counts in messages."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun, such as `1 board` or `2,000 boards`. `plural` is for nouns that need more than an s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
