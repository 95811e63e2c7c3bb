"""Limits: rates, and the limits that all boards with a prefix share. No I/O and no clock."""

import hashlib
import re
from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from live.domain.meaning import says

PREFIX: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\*")
_MOST: Final = 2**53
_FromZero = Annotated[int, Meta(ge=0, le=_MOST)]
_FromOne = Annotated[int, Meta(ge=1, le=_MOST)]


class Client(msgspec.Struct, frozen=True):
    """A client, or several clients together, with a rate of their own: `rate` `unit` per second, and `burst` at once.

    Clients with the same `rate_key` share a rate. A `rate_key` is safe as part of a store key, and no producer has it.
    `whom` is the subject of a refusal. `limit` is the name of the setting, or empty.
    """

    rate_key: str
    rate: float
    burst: int
    whom: str
    unit: str
    limit: str = ""


class LimitsChoice(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The choices of a `[limits."acme-*"]` table. A choice that is left out means no limit."""

    boards: Annotated[_FromZero | None, says("Maximum number of boards with the prefix. Default: no limit.")] = None
    members: Annotated[
        _FromOne | None, says("Maximum sum of the `max_members` of these boards. Default: no limit.")
    ] = None
    viewers: Annotated[_FromZero | None, says("Maximum viewers of these boards together. Default: no limit.")] = None
    rate: Annotated[_FromOne | None, says("Events per second that these boards count together. Default: no limit.")] = (
        None
    )


class PrefixLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that all boards with a prefix share. The `rate` 0 means no limit.

    They are stored and are part of the tag of a definition. So other versions may add limits, but not change the order.
    """

    prefix: str
    boards: int | None = None
    members: int | None = None
    viewers: int | None = None
    rate: int = 0

    @property
    def pattern(self) -> str:
        """The prefix as an operator writes it: `acme-*`."""
        return f"{self.prefix}*"

    def name(self, limit: str) -> str:
        """Say where an operator finds one of the limits."""
        return f'`{limit}` of [limits."{self.pattern}"] in the boards file'

    @property
    def client(self) -> Client:
        """The producers of these boards as one client. Two seconds of the rate may come at once."""
        whom = f"all producers of the boards `{self.pattern}` together"
        return Client(f"boards:{self.prefix}", self.rate, 2 * self.rate, whom, "events", self.name("rate"))


def limits_of(board: str, limits: Iterable[PrefixLimits]) -> PrefixLimits | None:
    """Return the limits of the prefix of a board, or None. Prefixes do not overlap, so at most one fits."""
    return next((one for one in limits if board.startswith(one.prefix)), None)


def digest_of_client(*parts: str) -> str:
    """Name a client for a `rate_key`, without its address."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
