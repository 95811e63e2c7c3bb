"""Limits: rates, and the limits that all boards with a prefix share. No I/O and no clock."""

import hashlib
import re
from typing import Annotated, ClassVar, Final, Protocol

import msgspec
from msgspec import Meta

PREFIX: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\*")
_MOST: Final = 2**53


class Rated(Protocol):
    """A client, producer or prefix with a rate.

    `rate` is in units per second (0 means no limit), and `burst` units may come at once. `unit` says what is counted,
    such as `events`. Objects with the same `rate_key` share a rate. `whom` is the subject of a refusal. `limit` is the
    name of the setting; it is empty if only a command can change the limit.
    """

    unit: ClassVar[str]

    @property
    def rate(self) -> float:
        """How many units may come in a second."""

    @property
    def burst(self) -> int:
        """How many units may come at once."""

    @property
    def rate_key(self) -> str:
        """The name under which the store counts the units."""

    @property
    def whom(self) -> str:
        """The subject of a refusal."""

    @property
    def limit(self) -> str:
        """The name of the limit."""


class Reading(msgspec.Struct, frozen=True):
    """A client that reads. It is identified by its API key or its network: `rate_key` is `key <id>` or the network."""

    rate_key: str
    rate: float
    burst: int

    unit: ClassVar[str] = "requests"
    limit: ClassVar[str] = "the setting read_rate"

    @property
    def whom(self) -> str:
        """The subject of a refusal."""
        return f"API {self.rate_key}" if self.rate_key.startswith("key ") else "an address without an API key"


class Liking(msgspec.Struct, frozen=True):
    """The likes of a network, or those of a voter with a viewer token. `rate_key` is safe as part of a store key."""

    rate_key: str
    rate: float
    burst: int
    whom: str

    unit: ClassVar[str] = "likes"
    limit: ClassVar[str] = "the setting like_rate"

    @classmethod
    def of_network(cls, network: str, rate: float, burst: int) -> "Liking":
        """Return the sender of the likes of all visitors in a network who have no viewer token."""
        return cls(f"likes:{_digest(network)}", rate, burst, "an address")

    @classmethod
    def of_voter(cls, signer: str, voter: str, rate: float, burst: int) -> "Liking":
        """Return a voter, whom the `sub` of a viewer token and the key that signed it tell apart from others."""
        return cls(f"likes:voter:{_digest(signer, voter)}", rate, burst, "a voter")


class LimitsChoice(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The choices of a `[limits."acme-*"]` table. A choice that is left out means no limit."""

    boards: Annotated[int, Meta(ge=0, le=_MOST)] | None = None
    members: Annotated[int, Meta(ge=1, le=_MOST)] | None = None
    viewers: Annotated[int, Meta(ge=0, le=_MOST)] | None = None
    rate: Annotated[int, Meta(ge=1, le=_MOST)] | None = None


class PrefixLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that all boards with a prefix share.

    `members` limits the sum of the `max_members` of these boards. `rate` limits the events per second that these boards
    count; 0 means no limit.
    """

    prefix: str
    boards: int | None = None
    members: int | None = None
    viewers: int | None = None
    rate: int = 0

    unit: ClassVar[str] = "events"

    @property
    def pattern(self) -> str:
        """The prefix as an operator writes it: `acme-*`."""
        return f"{self.prefix}*"

    def name(self, limit: str) -> str:
        """Say where an operator finds one of the limits."""
        return f'`{limit}` of [limits."{self.pattern}"] in the boards file'

    @property
    def burst(self) -> int:
        """How many events may come at once: those of two seconds."""
        return 2 * self.rate

    @property
    def rate_key(self) -> str:
        """The name under which events are counted. No rate of a producer has a name that begins like this."""
        return f"boards:{self.prefix}"

    @property
    def whom(self) -> str:
        """The subject of a refusal."""
        return f"all producers of the boards `{self.pattern}` together"

    @property
    def limit(self) -> str:
        """The name of the rate."""
        return self.name("rate")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
