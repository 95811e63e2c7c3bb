"""Viewer tokens: JSON Web Tokens that say which private boards a viewer may read, where it may vote, and until when.

An application that shares the secret, or has a private key of the key set, signs them. Commands and the admin page sign
some too. The server keeps only the SHA-256 of a token, and only while somebody reads with it.
"""

import asyncio
import base64
import math
import ssl
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final
from weakref import WeakValueDictionary

import jwt
import msgspec
import structlog
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    MissingRequiredClaimError,
    PyJWTError,
)
from msgspec import UNSET, Meta, UnsetType

from live.domain.event import member_fault
from live.domain.reader import BoardScope, Reader
from live.domain.text import character_fault
from live.domain.window import parse_duration
from live.errors import TOKEN_EXPIRED, SetupError
from live.settings import Settings

log = structlog.get_logger()

_ALGORITHMS: Final = frozenset({"RS256", "ES256", "EdDSA"})
_FAULTS: Final = (OSError, ValueError, TypeError, AttributeError, RecursionError, PyJWTError)
_LARGEST: Final = 256 * 1024  # bytes of a key set
_PAUSE: Final = 300.0  # seconds between two requests for a key set
_LEAST_PAUSE: Final = 10.0  # seconds between two requests, if a token names a key that is not in the set
_FILE_PAUSE: Final = 5.0
_DEADLINE: Final = 5.0  # seconds to connect, and then to read


class SharedSecret:
    """A secret for HS256. It is the only key, and a token can't choose another key."""

    def __init__(self, secret: str) -> None:
        self.on_changed: Callable[[], None] = lambda: None
        encoded = base64.urlsafe_b64encode(secret.encode()).rstrip(b"=").decode()
        self._key = jwt.PyJWK({"kty": "oct", "k": encoded}, "HS256")

    def find(self, _header: Mapping[str, Any]) -> tuple[str, jwt.PyJWK] | None:
        """Return the key."""
        return "", self._key

    def __contains__(self, signer: str) -> bool:
        """Tell whether `signer` is the name of the secret: an empty text."""
        return not signer

    async def run(self) -> None:
        """Do nothing: the secret does not change while the server runs."""


class _BoundedSocket(ssl.SSLSocket):
    """A TLS connection with a limit of bytes and of time, because PyJWT limits the time only for each piece."""

    _left = _LARGEST
    _ends = 0.0

    def recv_into(self, *args: Any, **options: Any) -> int:  # noqa: ANN401 - the library's own signature
        self._ends = self._ends or time.monotonic() + _DEADLINE
        self.settimeout(max(0.001, self._ends - time.monotonic()))
        count = super().recv_into(*args, **options)
        self._left -= count
        if self._left < 0:
            raise OSError(f"it has more than {_LARGEST} bytes")
        return count


class KeySet:
    """The public keys in a file or at an `https` address. If reading them fails, the last ones stay valid."""

    def __init__(self, place: str) -> None:
        self.on_changed: Callable[[], None] = lambda: None
        self._place = place
        self._client: jwt.PyJWKClient | None = None
        self._keys: dict[str | None, tuple[str, jwt.PyJWK]] | None = None
        self._signers: frozenset[str] = frozenset()
        self._missed = asyncio.Event()
        self._failed = False
        if place.startswith("https://"):
            context = ssl.create_default_context()
            context.sslsocket_class = _BoundedSocket
            self._client = jwt.PyJWKClient(place, cache_jwk_set=False, timeout=_DEADLINE, ssl_context=context)
            return
        try:
            self._take(self._read())
        except _FAULTS as error:
            raise SetupError(f"LIVE_TOKEN_JWKS: {place} can't be used: {error}") from None

    def find(self, header: Mapping[str, Any]) -> tuple[str, jwt.PyJWK] | None:
        """Find the key that the header of a token names, or the only key of the set if the header names none."""
        if self._keys is None:
            raise LookupError
        if "kid" not in header:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        found = self._keys.get(header["kid"])
        if found is None:
            self._missed.set()
        return found

    def __contains__(self, signer: str) -> bool:
        """Tell whether a key is in the set."""
        return signer in self._signers

    async def run(self) -> None:
        """Read the keys again and again. A token with an unknown key makes the server ask an address sooner."""
        while True:
            asked = time.monotonic()
            try:
                self._take(await asyncio.to_thread(self._read))
                self._failed = False
            except _FAULTS as error:
                if not self._failed:
                    reason = f"{type(error).__name__}: {error}"
                    log.warning("the keys of viewer tokens can't be read; the last known keys stay", reason=reason)
                self._failed = True
            pause = _FILE_PAUSE
            if self._client is not None:
                self._missed.clear()
                try:
                    async with asyncio.timeout(_PAUSE if self._keys else _LEAST_PAUSE):
                        await self._missed.wait()
                except TimeoutError:
                    continue
                pause = _LEAST_PAUSE - (time.monotonic() - asked)
            await asyncio.sleep(pause)

    def _read(self) -> list[jwt.PyJWK]:
        if self._client is not None:
            return self._client.get_jwk_set().keys
        with Path(self._place).open() as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST} characters")
        return jwt.PyJWKSet.from_json(text).keys

    def _take(self, listed: list[jwt.PyJWK]) -> None:
        """Replace the keys. Leave out keys for encryption, and keys of kinds that this server does not use."""
        keys: dict[str | None, tuple[str, jwt.PyJWK]] = {}
        for key in listed:
            if key.algorithm_name not in _ALGORITHMS or key.public_key_use not in {None, "sig"}:
                continue
            if not hasattr(key.key, "verify"):
                raise ValueError("it has a private key: give the server public keys only")
            if fault := key.Algorithm.check_key_length(key.key):
                raise ValueError(fault)
            if key.key_id in keys:
                raise ValueError("several keys have the same `kid`, or no `kid`")
            # A new key under the same `kid` has another name, so the tokens of the old key end.
            signer = key.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo).hex()
            keys[key.key_id] = signer, key
        if not keys:
            raise ValueError("it has no public key for RS256, ES256 or EdDSA")
        self._keys, before = keys, self._signers
        self._signers = frozenset(signer for signer, _ in keys.values())
        if self._signers != before:
            self.on_changed()


_SKEW: Final = 30  # seconds by which the clock of a signer may be ahead
_MOST_RECENT: Final = 1024
_LONGEST_NAP: Final = 60.0  # seconds; `_alarm` never waits longer, because somebody may set the clock
_Date = Annotated[int, Meta(ge=0, lt=2**53)] | Annotated[float, Meta(ge=0, lt=2**53)]
_EXPIRED: Final = "the viewer token has expired"


class Claims(msgspec.Struct, frozen=True):
    """The claims that the server reads. PyJWT checks `aud`, `iss` and `nbf`. The server ignores other claims."""

    exp: _Date
    iat: _Date | None = None
    boards: tuple[str, ...] = ()
    likes: tuple[str, ...] = ()
    sub: str | None = None
    member: str | None = msgspec.field(name="key", default=None)
    circle: UnsetType | object = UNSET


class TokenError(Exception):
    """A token is refused. The message says why, and contains no part of the token."""


class Tokens:
    """Finds readers by their tokens. `on_ended` is called when a token ends, because its reader may still watch."""

    def __init__(self, settings: Settings, keys: SharedSecret | KeySet) -> None:
        self.on_ended: Callable[[], None] = lambda: None
        self._settings = settings
        self._keys = keys
        self._keys.on_changed = self._end_old
        self._since = settings.tokens_since
        self._recent: dict[bytes, Reader] = {}
        self._readers: WeakValueDictionary[bytes, Reader] = WeakValueDictionary()
        self._alarm: asyncio.TimerHandle | None = None
        self._wakes = math.inf  # when `_alarm` goes off, in seconds since 1970

    def reader(self, token: bytes) -> Reader:
        """Find the reader of a token. With a refused token, the reader may read public boards only."""
        digest, now = sha256(token).digest(), time.time()
        reader = self._recent.get(digest) or self._readers.get(digest)
        if reader is not None and now < reader.ends:
            return reader
        try:
            reader = self._check(token, now)
        except TokenError as error:
            return Reader(fault=str(error))
        except LookupError:
            return Reader(fault="the keys of viewer tokens are not known yet", is_sure=False)
        if len(self._recent) >= _MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[digest] = self._readers[digest] = reader
        if reader.ends < self._wakes:
            self._set_alarm(reader.ends)
        return reader

    async def run(self) -> None:
        """Keep the keys up to date, until cancelled."""
        try:
            await self._keys.run()
        finally:
            if self._alarm is not None:
                self._alarm.cancel()

    def _check(self, token: bytes, now: float) -> Reader:
        if len(token) > MOST_TOKEN_BYTES:
            raise TokenError(f"the viewer token is longer than {MOST_TOKEN_BYTES} bytes")
        try:
            header = jwt.get_unverified_header(token)
            found = self._keys.find(header)
            if found is None or "crit" in header:
                raise TokenError("the viewer token is not signed with a key that this server knows")
            claims = msgspec.convert(self._payload(token, found[1]), Claims)
            self._check_claims(claims, now)
            return Reader(
                BoardScope.of(claims.boards), member=claims.member, likes=BoardScope.of(claims.likes),
                voter=claims.sub or "", signer=found[0], ends=int(claims.exp),
            )  # fmt: skip
        except (PyJWTError, ValueError, OverflowError, RecursionError) as error:
            raise TokenError(self._reason(error)) from None

    def _payload(self, token: bytes, key: jwt.PyJWK) -> dict[str, Any]:
        payload: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=self._settings.token_audience,
            issuer=self._settings.token_issuer or None,
            leeway=_SKEW,
            options={"require": ["exp", "aud", *(["iss"] if self._settings.token_issuer else [])]},
        )
        return payload

    def _check_claims(self, claims: Claims, now: float) -> None:
        """Check the claims that PyJWT does not check."""
        if now >= int(claims.exp):
            raise TokenError(_EXPIRED)
        if claims.exp > now + LONGEST_TOKEN + _SKEW:
            raise TokenError(f"`exp` of the viewer token is more than {LONGEST_TOKEN} s ahead")
        if self._since and claims.iat is None:
            raise TokenError("the viewer token has no `iat`, which this server requires")
        if claims.iat is not None and claims.iat < self._since:
            raise TokenError("the viewer token is revoked, like all tokens that were made before LIVE_TOKENS_SINCE")
        # A token with `circle` is for a part of a board only, so this version must not show the whole board for it.
        if claims.circle is not UNSET:
            raise TokenError("the viewer token has the claim `circle`, which this version does not know")
        if claims.member is not None and member_fault(claims.member) is not None:
            raise TokenError("`key` of the viewer token can't be on a board")
        if claims.likes and (fault := voter_fault(claims.sub)) is not None:
            raise TokenError(f"with `likes`, `sub` of the viewer token {fault}")

    def _reason(self, error: Exception) -> str:
        match error:
            case ExpiredSignatureError():
                reason = _EXPIRED
            case ImmatureSignatureError():
                reason = "the viewer token is not valid yet"
            case InvalidAudienceError():
                reason = f"`aud` of the viewer token must be {self._settings.token_audience}"
            case InvalidIssuerError():
                reason = f"`iss` of the viewer token must be {self._settings.token_issuer}"
            case MissingRequiredClaimError(claim=claim):
                reason = f"the viewer token has no `{claim}`"
            case msgspec.ValidationError():
                reason = "a claim of the viewer token has the wrong type"
            case _:
                reason = "the viewer token is malformed, or not signed with a key of this server"
        return reason

    def _set_alarm(self, ends: float) -> None:
        """Let `_end_old` run when the next token ends. `ends` is infinite if there is no token."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._wakes = None, ends
        if ends < math.inf:
            pause = min(max(0.0, ends - time.time()), _LONGEST_NAP)
            self._alarm = asyncio.get_running_loop().call_later(pause, self._end_old)

    def _end_old(self) -> None:
        """End the readers whose token has expired, or whose key is no longer valid."""
        now, ended = time.time(), False
        for digest, reader in list(self._readers.items()):
            if now < reader.ends and reader.signer in self._keys:
                continue
            reader.end(_EXPIRED if now >= reader.ends else "the key of the viewer token is no longer valid")
            reader.end_code = TOKEN_EXPIRED
            self._recent.pop(digest, None)
            del self._readers[digest]
            ended = True
        self._set_alarm(min((reader.ends for reader in self._readers.values()), default=math.inf))
        if ended:
            self.on_ended()


def make_tokens(settings: Settings) -> Tokens | None:
    """Make the object that checks viewer tokens. Return None if the settings name neither a secret nor a key set."""
    if settings.token_secret and settings.token_jwks:
        raise SetupError(
            "LIVE_TOKEN_SECRET and LIVE_TOKEN_JWKS are both set: choose one, so that no token can choose its algorithm"
        )
    if settings.token_secret:
        return Tokens(settings, SharedSecret(settings.token_secret))
    if settings.token_jwks:
        return Tokens(settings, KeySet(settings.token_jwks))
    return None


# Nobody can take a single token back, so it ends within a day. `LIVE_TOKENS_SINCE` ends all of them at once.
LONGEST_TOKEN: Final = 86400  # seconds
MOST_TOKEN_BYTES: Final = 3500
"""The longest token that the server takes. Some browsers drop a cookie with a longer token."""

_LONGEST_SUBJECT: Final = 256  # characters; the `actor` of an event may have as many


def voter_fault(voter: str | None) -> str | None:
    """Say what is wrong with the `sub` of a token that may vote, or return None."""
    if voter is None or not 0 < len(voter) <= _LONGEST_SUBJECT:
        return f"must have 1 to {_LONGEST_SUBJECT} characters"
    return None if character_fault(voter) is None else "contains a control or format character"


def sign_token(
    settings: Settings,
    boards: tuple[str, ...],
    length: str,
    member: str | None,
    likes: tuple[str, ...] = (),
    voter: str | None = None,
) -> tuple[str, int]:
    """Sign a token with which `voter` may vote on the boards in `likes`. Return it and its end, in seconds since 1970.

    The message about a wrong time, member or voter is a ValueError that begins with `for`, `key` or `sub`.
    """
    import jwt  # noqa: PLC0415 - it takes a while to load

    if not settings.token_secret:
        raise SetupError(
            "LIVE_TOKEN_SECRET is not set: give the server and this command the same secret of at least 32 bytes, such "
            "as `openssl rand -hex 32` makes. Sign tokens for LIVE_TOKEN_JWKS yourself, with the private key"
        )
    try:
        seconds = parse_duration(length)
    except ValueError:
        seconds = 0
    if not 1 <= seconds <= LONGEST_TOKEN:
        raise ValueError(f"for must be a time from 1s to {LONGEST_TOKEN}s, such as 8h")
    if member is not None and (fault := member_fault(member)) is not None:
        raise ValueError(f"key can't be a member: {fault}")
    if likes and (fault := voter_fault(voter)) is not None:
        raise ValueError(f"sub names the person who votes: {fault}")
    if voter is not None and not likes:
        raise ValueError("sub needs the boards on which the person may vote")
    if not boards and not likes:
        raise SetupError("name at least one board that the token opens, or on which it votes")
    now = int(time.time())
    claims = {
        "aud": settings.token_audience,
        **({"iss": settings.token_issuer} if settings.token_issuer else {}),
        **({} if member is None else {"key": member}),
        "iat": now,
        "exp": now + int(seconds),
        **({"boards": boards} if boards else {}),
        **({"likes": likes, "sub": voter} if likes else {}),
    }
    token = jwt.encode(claims, settings.token_secret, "HS256")
    if len(token) > MOST_TOKEN_BYTES:
        most = f"the server takes {MOST_TOKEN_BYTES:,} at most"
        raise SetupError(
            f"the token has {len(token):,} bytes, and {most}: name fewer boards, or prefixes such as acme-*"
        )
    return token, now + int(seconds)
