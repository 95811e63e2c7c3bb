"""Who sends events: producers, their keys and what a key is for. No I/O and no clock."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from live.errors import ProblemError, SetupError

Verb = Literal["post", "admin"]

PRODUCER_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
ALL: Final = "*"  # among the event types of a producer: every one
MOST_SECRETS: Final = 2  # the old one and the new one, while a producer changes over

_BEARER: Final = re.compile(rb"(?i:bearer) +([a-z0-9][a-z0-9_-]{0,63})\.([\x21-\x7e]{1,256})")
_NO_DIGEST: Final = bytes(32)  # nobody knows a secret with this digest
_PREFIX: Final = 64  # bits of an IPv6 address that tell one site from another; the rest is the site's to choose


class Producer(msgspec.Struct, frozen=True):
    """Whom a request comes from, and what it may do.

    `id` is empty for an anonymous one. `boards` is None for all. `rate` is in events a second, 0 for no limit; `burst`
    may come at once. Its rate is counted under `rate_key`, which is safe in the name of a key. Where amounts are added
    up, `max_amount` is how far from zero one of its may be (None: as far as the board allows). `sources` are the types
    of events that boards which it makes may take; None for all.
    """

    id: str
    boards: frozenset[str] | None
    verbs: frozenset[Verb]
    rate: float
    burst: int
    rate_key: str
    max_amount: int | None = None
    sources: frozenset[str] | None = None

    @property
    def is_limited(self) -> bool:
        """Whether it has rights to some boards only."""
        return self.boards is not None

    def require(self, verb: Verb) -> None:
        """Let a producer pass that may do this.

        Raises:
            ProblemError: `scope_forbidden`.
        """
        if verb not in self.verbs:
            raise ProblemError("scope_forbidden", f"the API key permits {', '.join(sorted(self.verbs))}, not {verb}")

    def require_board(self, board: str) -> None:
        """Let a producer pass whose key is for this board.

        Raises:
            ProblemError: `scope_forbidden`.
        """
        if self.boards is not None and board not in self.boards:
            raise ProblemError("scope_forbidden", f"the API key does not include board {board}")

    def require_sources(self, sources: Iterable[str]) -> None:
        """Let a producer pass whose boards may take events of these types.

        Raises:
            ProblemError: `scope_forbidden`.
        """
        missing = sorted(set(sources) - self.sources) if self.sources is not None else []
        if missing:
            types = ",".join(missing)
            detail = (
                f"the API key may not make boards for events of type {types}; see `live keys add --sources {types}`"
            )
            raise ProblemError("scope_forbidden", detail)

    def refusal(self, board: str) -> str | None:
        """The code with which an event for this board is refused; None when the producer may feed it."""
        return None if self.boards is None or board in self.boards else "board_forbidden"


class Secret(msgspec.Struct, frozen=True):
    """A secret as it is kept: its SHA-256, and when it was made, in seconds since 1970."""

    digest: Annotated[bytes, Meta(min_length=32, max_length=32)]
    created: int

    @property
    def fingerprint(self) -> str:
        """A short public name; it tells neither the secret nor its digest."""
        return hashlib.sha256(b"fingerprint:" + self.digest).hexdigest()[:8]


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a producer when a key is made; what is not said stays as it is."""

    boards: tuple[str, ...] | UnsetType | None = UNSET
    verbs: tuple[Verb, ...] | UnsetType = UNSET
    rate: float | UnsetType = UNSET
    burst: int | UnsetType = UNSET
    max_amount: int | UnsetType | None = UNSET
    sources: tuple[str, ...] | UnsetType | None = UNSET


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A producer as it is kept; times are seconds since 1970. It stays when it is revoked, without its secrets.

    `rate` is None for the default of the settings; `burst` is None for two seconds of a rate of its own. `sources` is
    None for the default: all types of events for a producer with rights to all boards, and otherwise none.
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

    def producer(self, rate: float, burst: int) -> Producer:
        """The producer; `rate` and `burst` are the defaults."""
        if self.burst is not None:
            burst = self.burst
        elif self.rate:
            burst = max(1, round(2 * self.rate))
        boards = None if self.boards is None else frozenset(self.boards)
        return Producer(
            id=self.id,
            boards=boards,
            verbs=frozenset(self.verbs),
            rate=rate if self.rate is None else self.rate,
            burst=burst,
            rate_key=self.id,
            max_amount=self.max_amount,
            sources=self._sources,
        )

    @property
    def _sources(self) -> frozenset[str] | None:
        if self.sources is None:
            return None if self.boards is None else frozenset()
        return None if ALL in self.sources else frozenset(self.sources)

    @property
    def digests(self) -> tuple[bytes, ...]:
        """The digests of its secrets, filled up to as many as there can be."""
        return (*(secret.digest for secret in self.secrets), *NO_DIGESTS)[:MOST_SECRETS]


NO_DIGESTS: Final = (_NO_DIGEST,) * MOST_SECRETS


def anonymous(address: str, rate: float, burst: int, *, admin: bool = False) -> Producer:
    """A producer without a key, who may post, or `admin` too; its rate is that of the address, in IPv6 of the site."""
    site = address
    try:
        parsed = ip_address(address)
    except ValueError:
        pass  # a unix socket has no address, and a proxy may give any text
    else:
        if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
            site = str(int(parsed) >> 128 - _PREFIX)
    rate_key = f"anonymous:{hashlib.sha256(site.encode()).hexdigest()[:32]}"
    verbs: frozenset[Verb] = frozenset({"post", "admin"} if admin else {"post"})
    return Producer("", None, verbs, rate, burst, rate_key)


def new_secret() -> str:
    """A secret that can't be guessed; it is shown once and never kept."""
    return secrets.token_urlsafe(32)


def digest_of(secret: bytes) -> bytes:
    """What is kept of a secret. It is random and long, so a slow hash would protect nothing."""
    return hashlib.sha256(secret).digest()


def parse_bearer(authorization: bytes) -> tuple[str, bytes] | None:
    """Id and secret out of `Bearer <id>.<secret>`; None when it is not that."""
    match = _BEARER.fullmatch(authorization)
    return None if match is None else (match[1].decode(), match[2])


def matches(digests: Sequence[bytes], secret: bytes) -> bool:
    """Whether a secret has one of the digests; takes as long for any secret and for any `MOST_SECRETS` digests."""
    digest = digest_of(secret)
    found = False
    for kept in digests:
        found |= hmac.compare_digest(kept, digest)
    return found


def with_secret(record: Record | None, producer: str, scope: Scope, digest: bytes, now: int) -> Record:
    """The record with one more secret: of a new producer, of one that changes over, or of a revoked one that returns.

    Raises:
        SetupError: the id is none, or two secrets are live already.
    """
    if not PRODUCER_ID.fullmatch(producer):
        raise SetupError(f"the producer's id {producer!r} does not match ^[a-z0-9][a-z0-9_-]{{0,63}}$")
    record = record or Record(id=producer, created=now)
    if len(record.secrets) >= MOST_SECRETS:
        live = ", ".join(secret.fingerprint for secret in record.secrets)
        raise SetupError(
            f"producer {producer!r} has {MOST_SECRETS} valid secrets ({live}): "
            f"revoke one first, with `live keys revoke {producer} --secret FINGERPRINT`"
        )
    said = {name: value for name, value in msgspec.structs.asdict(scope).items() if value is not UNSET}
    secret = Secret(digest, now)
    return msgspec.structs.replace(record, **said, secrets=(*record.secrets, secret), revoked=None)


def without_secret(record: Record | None, producer: str, fingerprint: str | None, now: int) -> Record:
    """The record without one of its secrets, or without all: then it is revoked.

    Raises:
        SetupError: there is no such producer, or it has no such secret.
    """
    if record is None:
        raise SetupError(f"there is no producer {producer!r}; `live keys list` lists them")
    kept = tuple(secret for secret in record.secrets if fingerprint not in (None, secret.fingerprint))
    if fingerprint is not None and len(kept) == len(record.secrets):
        live = ", ".join(secret.fingerprint for secret in record.secrets) or "none"
        raise SetupError(f"producer {producer!r} has no secret {fingerprint!r}; its valid secrets: {live}")
    revoked = record.revoked if kept or record.revoked is not None else now
    return msgspec.structs.replace(record, secrets=kept, revoked=revoked)
