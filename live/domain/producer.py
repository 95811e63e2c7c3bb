"""Producers: who sends events, their API keys, and what an API key permits. No I/O and no clock."""

import hashlib
import re
import secrets
from collections.abc import Iterable
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from live.domain.limits import Client, digest_of_client
from live.domain.reader import ALL_BOARDS, NO_BOARDS, BoardScope
from live.domain.text import ID_FORM
from live.errors import ProblemError, SetupError

Verb = Literal["post", "read", "admin"]

PRODUCER_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
ALL: Final = "*"  # in `sources`: all event types
SERVER: Final = "server"
"""The name of the server in the audit log. It deletes expired boards and creates the first admin API key."""
ANONYMOUS: Final = "anonymous"
"""The name of an administrator without an API key in the audit log."""
MOST_SECRETS: Final = 2  # the old secret and the new secret during a key rotation

# The producer of visitors' likes. No API key has an id with a colon, so no other producer can use up the identities of
# these likes.
LIKES: Final = ":likes"

# How many seconds of its rate a sender may send at once: what a batch or a short pause collects.
BURST: Final = 2.0
_BEARER: Final = re.compile(rb"(?i:bearer) +([a-z0-9][a-z0-9_-]{0,63})\.([\x21-\x7e]{1,256})")
_NO_DIGEST: Final = bytes(32)  # no known secret has this digest


class Principal(msgspec.Struct, frozen=True):
    """The sender of a request, and what the sender may do.

    `id` is empty for an anonymous producer. If `boards` is None, the producer has rights to all boards. `rate` is in
    events per second, and 0 means no limit. `burst` is the number of events that may come at once. Producers with the
    same `rate_key` share a rate. A `rate_key` is safe as part of a store key. `max_amount` is the largest absolute
    amount that the producer may send to boards that add up amounts. None means only the board's own limit. `sources`
    are the event types that the boards of this producer may take, if it may define boards. None means all types.
    """

    id: str
    boards: BoardScope | None
    verbs: frozenset[Verb]
    rate: float
    burst: int
    rate_key: str
    max_amount: int | None = None
    sources: frozenset[str] | None = None

    unit: ClassVar[str] = "events"
    limit: ClassVar[str] = ""

    @property
    def whom(self) -> str:
        """The subject of a refusal because of the rate."""
        return f"producer {self.id}" if self.id else "an address without an API key"

    @property
    def is_limited(self) -> bool:
        """Whether the producer has rights to some boards only."""
        return self.boards is not None

    @property
    def opens(self) -> BoardScope:
        """The private boards that the producer may read."""
        if self.verbs.isdisjoint(("read", "admin")):
            return NO_BOARDS
        return ALL_BOARDS if self.boards is None else self.boards

    def feeds(self, board: str) -> bool:
        """Tell whether the producer may feed a private board. Without an API key, it may not."""
        return bool(self.id) and (self.boards is None or board in self.boards)

    def require(self, verb: Verb) -> None:
        """Check that the producer may do `verb`."""
        if verb not in self.verbs:
            raise ProblemError("scope_forbidden", f"the API key permits {', '.join(sorted(self.verbs))}, not {verb}")

    def require_board(self, board: str) -> None:
        """Check that the API key gives rights to this board."""
        if self.boards is not None and board not in self.boards:
            raise ProblemError("scope_forbidden", f"the API key does not include board {board}")

    def require_sources(self, sources: Iterable[str]) -> None:
        """Check that boards of this producer may take events of these types."""
        missing = sorted(set(sources) - self.sources) if self.sources is not None else []
        if missing:
            types = ",".join(missing)
            detail = (
                f"the API key does not permit boards for events of type {types}; see `live keys add --types {types}`"
            )
            raise ProblemError("scope_forbidden", detail)

    def refusal(self, board: str) -> str | None:
        """Return the code with which an event for this board is refused, or None if the producer may feed it."""
        return None if self.boards is None or board in self.boards else "board_forbidden"


Rated: TypeAlias = Principal | Client
"""What has a rate: `rate` units per second, and `burst` at once. A rate of 0 means no limit."""


class Secret(msgspec.Struct, frozen=True):
    """A secret as it is stored: its SHA-256, and its creation time in seconds since 1970."""

    digest: Annotated[bytes, Meta(min_length=32, max_length=32)]
    created: int

    @property
    def fingerprint(self) -> str:
        """A short public name of the secret. It reveals neither the secret nor the digest."""
        return hashlib.sha256(b"fingerprint:" + self.digest).hexdigest()[:8]


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The options for creating an API key. Unset options keep their current value."""

    boards: tuple[str, ...] | UnsetType | None = UNSET
    verbs: tuple[Verb, ...] | UnsetType = UNSET
    rate: float | UnsetType = UNSET
    burst: int | UnsetType = UNSET
    max_amount: int | UnsetType | None = UNSET
    sources: tuple[str, ...] | UnsetType | None = UNSET
    expires: int | UnsetType | None = UNSET


class StoredProducer(msgspec.Struct, frozen=True, kw_only=True):
    """A producer as it is stored, with times in seconds since 1970. A revoked producer stays stored, without secrets.

    If `rate` is None, the default in the settings applies. If `burst` is None, a burst may have as many events as the
    rate allows in two seconds. If `sources` is None, boards of a producer with rights to all boards may take all
    event types. Boards of any other producer may take none. All secrets end at `expires`.
    """

    id: str
    created: int
    boards: tuple[str, ...] | None = None
    verbs: tuple[Verb, ...] = ("post",)
    rate: float | None = None
    burst: int | None = None
    max_amount: int | None = None
    sources: tuple[str, ...] | None = None
    secrets: tuple[Secret, ...] = ()
    revoked: int | None = None
    expires: int | None = None

    def producer(self, rate: float) -> Principal:
        """Return the producer as the sender of a request. `rate` is the default."""
        rate = rate if self.rate is None else self.rate
        boards = None if self.boards is None else BoardScope.of(self.boards)
        if self.sources is None:
            sources = None if boards is None else frozenset[str]()
        else:
            sources = None if ALL in self.sources else frozenset(self.sources)
        return Principal(
            id=self.id,
            boards=boards,
            verbs=frozenset(self.verbs),
            rate=rate,
            burst=burst_of(rate) if self.burst is None else self.burst,
            rate_key=self.id,
            max_amount=self.max_amount,
            sources=sources,
        )

    @property
    def digests(self) -> tuple[bytes, ...]:
        """The digests of the secrets, padded to the maximum number of secrets."""
        return (*(secret.digest for secret in self.secrets), *NO_DIGESTS)[:MOST_SECRETS]


NO_DIGESTS: Final = (_NO_DIGEST,) * MOST_SECRETS


def burst_of(rate: float, seconds: float = BURST) -> int:
    """Return how much may come at once at a rate: what the rate allows in some seconds, and at least one."""
    return max(1, round(seconds * rate))


def anonymous(network: str, rate: float, *, admin: bool = False) -> Principal:
    """Return a producer without an API key, with the verb `post`. If `admin` is true, it also has the verb `admin`.

    All anonymous producers of a network share one rate. `live.http.networks.network_of` gives the network.
    """
    verbs: frozenset[Verb] = frozenset({"post", "admin"} if admin else {"post"})
    return Principal("", None, verbs, rate, burst_of(rate), f"anonymous:{digest_of_client(network)}")


def new_secret() -> str:
    """Make a random secret. It is shown once and never stored."""
    return secrets.token_urlsafe(32)


def digest_of(secret: bytes) -> bytes:
    """Hash a secret. Secrets are random and long, so a slow hash would protect nothing."""
    return hashlib.sha256(secret).digest()


def parse_bearer(authorization: bytes) -> tuple[str, bytes] | None:
    """Split `Bearer <id>.<secret>` into the id and the secret. Return None for any other text."""
    match = _BEARER.fullmatch(authorization)
    return None if match is None else (match[1].decode(), match[2])


def with_secret(record: StoredProducer | None, producer: str, scope: Scope, digest: bytes, now: int) -> StoredProducer:
    """Add a secret. This creates a producer, starts a key rotation, or restores a revoked producer."""
    if not PRODUCER_ID.fullmatch(producer):
        raise SetupError(f"the producer's id {producer!r} is not an id: {ID_FORM}")
    if producer in {SERVER, ANONYMOUS}:
        raise SetupError(f"{producer!r} names no API key: the audit log uses it")
    record = record or StoredProducer(id=producer, created=now)
    if len(record.secrets) >= MOST_SECRETS:
        live = ", ".join(secret.fingerprint for secret in record.secrets)
        raise SetupError(
            f"producer {producer!r} has {MOST_SECRETS} valid secrets ({live}): "
            f"revoke one first, with `live keys revoke {producer} --secret FINGERPRINT`"
        )
    given = {name: value for name, value in msgspec.structs.asdict(scope).items() if value is not UNSET}
    secret = Secret(digest, now)
    return msgspec.structs.replace(record, **given, secrets=(*record.secrets, secret), revoked=None)


def without_secret(record: StoredProducer | None, producer: str, fingerprint: str | None, now: int) -> StoredProducer:
    """Remove one secret, or all secrets. A producer without secrets is revoked."""
    if record is None:
        raise SetupError(f"there is no producer {producer!r}; `live keys list` lists them")
    kept = tuple(secret for secret in record.secrets if fingerprint not in (None, secret.fingerprint))
    if fingerprint is not None and len(kept) == len(record.secrets):
        live = ", ".join(secret.fingerprint for secret in record.secrets) or "none"
        raise SetupError(f"producer {producer!r} has no secret {fingerprint!r}; its valid secrets: {live}")
    revoked = record.revoked if kept or record.revoked is not None else now
    return msgspec.structs.replace(record, secrets=kept, revoked=revoked)
