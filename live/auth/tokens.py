"""Viewer tokens: JSON Web Tokens that say which private boards a viewer may read, where it may vote, and until when.

An application that shares the secret, or has a private key of the key set, signs them. The server keeps only the
SHA-256 of a token, and only while somebody reads with it.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Annotated, Any, Final, Protocol
from weakref import WeakValueDictionary

import jwt
import msgspec
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    MissingRequiredClaimError,
    PyJWTError,
)
from msgspec import UNSET, Meta, UnsetType

from live.auth.signing import LONGEST_TOKEN, MOST_TOKEN_BYTES, voter_fault
from live.auth.token_keys import KeySet, SharedSecret
from live.domain.event import key_fault
from live.domain.reader import BoardScope, Reader
from live.errors import TOKEN_EXPIRED, SetupError
from live.settings import Settings

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
    key: str | None = None
    circle: UnsetType | object = UNSET


class TokenError(Exception):
    """A token is refused. The message says why, and contains no part of the token."""


class TokenReader(Reader):
    """The reader of a token."""

    __slots__ = ()

    ends: int

    def __init__(self, claims: Claims, signer: str) -> None:
        likes = BoardScope.of(claims.likes)
        super().__init__(BoardScope.of(claims.boards), member=claims.key, likes=likes, voter=claims.sub or "")
        self.ends = int(claims.exp)
        self.signer = signer


class CheckingKeys(Protocol):
    """The keys that verify tokens. The key determines the algorithm."""

    on_changed: Callable[[], None]

    def find(self, header: Mapping[str, Any]) -> tuple[str, jwt.PyJWK] | None:
        """Find the key for the header of a token, with its name. Return None if there is no such key.

        Raises:
            LookupError: the keys are not known yet.
        """

    def __contains__(self, signer: str) -> bool:
        """Tell whether the key with this name is still valid."""

    async def run(self) -> None:
        """Keep the keys up to date, until cancelled."""


class Tokens:
    """Finds readers by their tokens.

    `on_ended` is called when a token has ended, because its reader may still watch.
    """

    def __init__(self, settings: Settings, keys: CheckingKeys) -> None:
        self.on_ended: Callable[[], None] = lambda: None
        self._settings = settings
        self._keys = keys
        self._keys.on_changed = self._end_old
        self._since = settings.tokens_since
        self._recent: dict[bytes, TokenReader] = {}
        self._readers: WeakValueDictionary[bytes, TokenReader] = WeakValueDictionary()
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

    def _check(self, token: bytes, now: float) -> TokenReader:
        """Check a token.

        Raises:
            TokenError: the token is refused.
            LookupError: the keys are not known yet.
        """
        if len(token) > MOST_TOKEN_BYTES:
            raise TokenError(f"the viewer token is longer than {MOST_TOKEN_BYTES} bytes")
        try:
            header = jwt.get_unverified_header(token)
            found = self._keys.find(header)
            if found is None or "crit" in header:
                raise TokenError("the viewer token is not signed with a key that this server knows")
            claims = msgspec.convert(self._payload(token, found[1]), Claims)
            self._check_claims(claims, now)
            return TokenReader(claims, found[0])
        except (PyJWTError, ValueError, OverflowError, RecursionError) as error:
            raise TokenError(self._reason(error)) from None

    def _payload(self, token: bytes, key: jwt.PyJWK) -> dict[str, Any]:
        """Return the claims of a token whose signature, times, audience and issuer are right."""
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
        """Check the claims that PyJWT does not check.

        Raises:
            TokenError: a claim is refused.
        """
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
        if claims.key is not None and key_fault(claims.key) is not None:
            raise TokenError("`key` of the viewer token can't be on a board")
        if claims.likes and (fault := voter_fault(claims.sub)) is not None:
            raise TokenError(f"with `likes`, `sub` of the viewer token {fault}")

    def _reason(self, error: Exception) -> str:
        """Say why a token is refused. The signature is checked before the claims."""
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
    """Make the object that checks viewer tokens. Return None if the settings name neither a secret nor a key set.

    Raises:
        SetupError: the settings name both, or the file of the key set is not valid.
    """
    if settings.token_secret and settings.token_jwks:
        raise SetupError(
            "LIVE_TOKEN_SECRET and LIVE_TOKEN_JWKS are both set: choose one, so that no token can choose its algorithm"
        )
    if settings.token_secret:
        return Tokens(settings, SharedSecret(settings.token_secret))
    if settings.token_jwks:
        return Tokens(settings, KeySet(settings.token_jwks))
    return None
