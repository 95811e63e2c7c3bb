"""Rates: how much of something may come in a second. No I/O and no clock."""

from typing import ClassVar, Protocol

import msgspec


class Rated(Protocol):
    """What has a rate. `rate` counts a second, 0 means no limit, and `burst` may come at once.

    All with the same `rate_key` share a rate. `unit` is what is counted, and `whom` says who is limited. `limit` says
    where an operator finds the limit; it is empty if only a command can change it.
    """

    unit: ClassVar[str]

    @property
    def rate(self) -> float:
        """How many may come in a second."""

    @property
    def burst(self) -> int:
        """How many may come at once."""

    @property
    def rate_key(self) -> str:
        """The name under which they are counted."""

    @property
    def whom(self) -> str:
        """The subject of a refusal."""

    @property
    def limit(self) -> str:
        """The name of the limit."""


class Reading(msgspec.Struct, frozen=True):
    """A client that reads, by its API key or its network. `rate_key` is `key <id>` or the network."""

    rate_key: str
    rate: float
    burst: int

    unit: ClassVar[str] = "requests"
    limit: ClassVar[str] = "the settings read_rate and read_burst"

    @property
    def whom(self) -> str:
        """The subject of a refusal."""
        return f"API {self.rate_key}" if self.rate_key.startswith("key ") else "an address without an API key"
