"""The keys that verify viewer tokens: one secret that the signer also has, or a set of public keys."""

import asyncio
import base64
import binascii
import json
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import aiohttp
import jwt
import structlog
from jwt.exceptions import PyJWTError

from live.errors import SetupError

log = structlog.get_logger()

_ALGORITHMS: Final = {("RSA", None): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
_LEAST_RSA: Final = 2048  # bits
_MOST_KEYS: Final = 100
_LARGEST: Final = 256 * 1024  # bytes of a key set
_PAUSE: Final = 300.0  # seconds between two requests for a key set
_LEAST_PAUSE: Final = 10.0  # seconds between two requests, if a token names a key that is not in the set
_FILE_PAUSE: Final = 5.0
_DEADLINE: Final = 10.0


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


class KeySet:
    """The public keys in a file or at an `https` address.

    If reading the set fails, the keys from the last reading stay valid.

    A key is named by a digest of all its parts, so a new key under the same `kid` has another name.
    """

    def __init__(self, place: str) -> None:
        self.on_changed: Callable[[], None] = lambda: None
        self._place = place
        self._is_remote = place.startswith("https://")
        self._keys: dict[str, tuple[str, jwt.PyJWK]] | None = None
        self._names: frozenset[str] = frozenset()
        self._data = b""
        self._missed = asyncio.Event()
        self._failed = False
        if not self._is_remote:
            try:
                self._take(_read(Path(place)))
            except (OSError, ValueError) as error:
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
        """Tell whether the key with this name is in the set."""
        return signer in self._names

    async def run(self) -> None:
        """Read the keys again and again, until cancelled.

        If the keys are at an address, a token with an unknown key makes the server ask sooner.
        """
        while True:
            asked = time.monotonic()
            try:
                data = await (self._fetch() if self._is_remote else asyncio.to_thread(_read, Path(self._place)))
                self._take(data)
                self._failed = False
            except (OSError, ValueError, aiohttp.ClientError) as error:
                if not self._failed:
                    reason = f"{type(error).__name__}: {error}"
                    log.warning("the keys of viewer tokens can't be read; the last known keys stay", reason=reason)
                self._failed = True
            pause = _FILE_PAUSE
            if self._is_remote:
                self._missed.clear()
                try:
                    async with asyncio.timeout(_PAUSE if self._keys else _LEAST_PAUSE):
                        await self._missed.wait()
                except TimeoutError:
                    continue
                pause = _LEAST_PAUSE - (time.monotonic() - asked)
            await asyncio.sleep(pause)

    async def _fetch(self) -> bytes:
        """Ask for the key set. Follow no redirect, which could lead to another host, or to an address without TLS."""
        timeout = aiohttp.ClientTimeout(total=_DEADLINE)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(self._place, allow_redirects=False, headers={"Accept": "application/json"}) as response,
        ):
            if response.status != 200:  # noqa: PLR2004 - OK
                raise ValueError(f"the status is {response.status}")
            data = b""
            async for piece in response.content.iter_any():
                data += piece
                if len(data) > _LARGEST:
                    raise ValueError(f"it has more than {_LARGEST} bytes")
            return data

    def _take(self, data: bytes) -> None:
        """Replace the keys, if the data has changed.

        Raises:
            ValueError: the data is not a key set.
        """
        if data == self._data:
            return
        keys = parse_keys(data)
        self._data, self._keys, self._names = data, keys, frozenset(name for name, _ in keys.values())
        self.on_changed()


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"it has more than {_LARGEST} bytes")
    return data


def parse_keys(data: bytes) -> dict[str, tuple[str, jwt.PyJWK]]:
    """Read a JSON Web Key Set. Return each key by its `kid`, with a unique name.

    Leave out keys for encryption, and keys of kinds that this server does not use.

    Raises:
        ValueError: this is no key set, or it has no key that can be used.
    """
    try:
        listed = json.loads(data)["keys"]
        found = [pair for each in listed[:_MOST_KEYS] if (pair := _key_of(each)) is not None]
    except (KeyError, TypeError, AttributeError, RecursionError, binascii.Error, PyJWTError) as error:
        raise ValueError(f"it is not a JSON Web Key Set ({type(error).__name__})") from None
    keys = dict(found)
    if len(keys) < len(found):
        raise ValueError("several keys have the same `kid`, or no `kid`")
    if not keys:
        raise ValueError("it has no public key for RS256, ES256 or EdDSA")
    return keys


def _key_of(each: Mapping[str, Any]) -> tuple[str, tuple[str, jwt.PyJWK]] | None:
    """Read one key. Its kind determines the algorithm. Return None for a key that can't verify tokens."""
    kind = each["kty"]
    algorithm = _ALGORITHMS.get((kind, None if kind == "RSA" else each.get("crv")))
    if algorithm is None or each.get("use", "sig") != "sig" or each.get("alg", algorithm) != algorithm:
        return None
    if "d" in each:
        raise ValueError("it has a private key: give the server public keys only")
    key = jwt.PyJWK(dict(each), algorithm)
    if kind == "RSA" and key.key.key_size < _LEAST_RSA:
        raise ValueError(f"an RSA key has less than {_LEAST_RSA} bits")
    name = sha256(json.dumps(each, sort_keys=True).encode()).hexdigest()
    return str(each.get("kid", "")), (name, key)
