"""The keys that verify viewer tokens: one secret that the signer also has, or a set of public keys."""

import asyncio
import base64
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import jwt
import structlog
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.exceptions import PyJWTError

from live.errors import SetupError

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
    """A TLS connection that fails after too many bytes, or if reading them takes too long.

    PyJWT limits neither: its time limit is for each piece of the response.
    """

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
    """The public keys in a file or at an `https` address.

    If reading the set fails, the keys from the last reading stay valid.
    """

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
        """Find the key that the header of a token names, or the only key of the set if the header names none.

        Return None if there is no such key.

        Raises:
            LookupError: the keys are not known yet.
        """
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
        """Read the keys again and again, until cancelled.

        If the keys are at an address, a token with an unknown key makes the server ask sooner.
        """
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
        """Replace the keys. Leave out keys for encryption, and keys of kinds that this server does not use.

        Raises:
            ValueError: a key is private or small, or there is no key that can be used.
        """
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
