"""The authenticator: finds the producer of a request, without I/O, in its last copy of the API keys."""

import asyncio
import hmac
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

import structlog

from live.auth.requester import Requester
from live.auth.sessions import SignedIn
from live.domain.producer import NO_DIGESTS, Principal, Secret, Verb, anonymous, digest_of, parse_bearer
from live.domain.reader import NO_BOARDS, NOBODY, Reader
from live.errors import EPOCH_LOST_DETAIL, ProblemError, StoreUnavailableError
from live.http.networks import Headers, is_loopback
from live.metrics import KEYS_EXPIRE
from live.settings import Settings
from live.store.connection.client import Store
from live.store.registry.producers import ProducerStore
from live.store.registry.sessions import SessionStore

if TYPE_CHECKING:
    from live.auth.tokens import Tokens  # importing this takes a while, and few servers need it

log = structlog.get_logger()

_PAUSE: Final = 1.0  # seconds between two checks of the store
_CHECK_DEADLINE: Final = 1.0
_NOTING: Final = 60.0  # seconds between two writes that record which secrets were used
_SPARE: Final = 2.5  # seconds that a check is valid beyond the write deadline: the time from one check to the next one
_ADVICE: Final[Mapping[Verb, str]] = {
    "post": "`live keys add ID`",
    "read": "`live keys add ID --verbs read`",
    "admin": "`live keys add ID --verbs admin`",
}
_UNSURE: Final = Reader(is_sure=False)
_UNKNOWN: Final = Reader(fault="the API key of this request is unknown, expired or revoked")
_MAY_NOT_READ: Final = "the API key of this request does not have the verb `read`"
_NO_TOKENS: Final = Reader(fault="this server accepts no viewer tokens: set LIVE_TOKEN_SECRET or LIVE_TOKEN_JWKS")
_CHALLENGE: Final = 'Bearer realm="Live Board"'
_TOKEN: Final = re.compile(rb"[\w-]+\.[\w-]+\.[\w-]+")  # an API key has only one dot
_NO_TOKEN: Final = Reader(fault="the viewer token of this request is malformed")
_BEARER_TOKEN: Final = re.compile(rb"(?i:bearer) +(%b)" % _TOKEN.pattern)
_NO_QUERY: Final[Mapping[str, str]] = {}


class _Known(NamedTuple):
    producer: Principal
    digests: tuple[bytes, ...]


class _Read(NamedTuple):
    """The version of the API keys that was read last, and when the next API key expires, in seconds since 1970."""

    version: str | None = None
    next_end: float = math.inf


class _Uses(NamedTuple):
    """The uses of API keys that are not in the store yet: digests of secrets, and refusals by a rate for each id."""

    digests: set[bytes]
    refused: Counter[str]


class Authenticator:
    """Finds producers and readers by their API keys.

    `generation` changes whenever an earlier result may no longer be valid. `on_revoked` is called when a reader may
    read less than before.
    """

    def __init__(self, client: Store, settings: Settings, tokens: "Tokens | None" = None) -> None:
        self.generation = 0
        self.on_revoked: Callable[[], None] = lambda: None
        self.tokens = tokens
        self.signed_in = SignedIn(SessionStore(client), settings, self.holder)
        self._readers: WeakValueDictionary[tuple[str, bytes], Reader] = WeakValueDictionary()
        self._settings = settings
        self._high_water = client.high_water
        self._store = ProducerStore(client)
        self._known: Mapping[str, _Known] = {}
        self._read = _Read()
        self._uses = _Uses(set(), Counter())
        self._checked = float("-inf")
        self._lapse: asyncio.TimerHandle | None = None
        self._checking = asyncio.Lock()  # otherwise the result of an older check could overwrite a newer result
        # Whether producers need an API key. This value never becomes false again, so a store that lost its producers
        # admits nobody.
        self._key_required = not settings.open and not is_loopback(settings.host)

    @property
    def _fresh_until(self) -> float:
        """When the last check is too old. A failover may take as long as the write deadline."""
        return self._checked + self._settings.write_deadline + _SPARE

    async def open(self) -> None:
        """Check the store now, and read the API keys if they have changed."""
        async with self._checking:
            started, registered = time.monotonic(), None  # the check may miss changes that are made after this time
            try:
                async with asyncio.timeout(_CHECK_DEADLINE):
                    version, has_ended = self._read.version, time.time() >= self._read.next_end
                    if version is None or has_ended or await self._store.version() != version:
                        registered = await self._store.load()
            except TimeoutError as error:
                reason = f"the store did not answer within {_CHECK_DEADLINE:g}s"
                raise StoreUnavailableError(reason, public="the store does not answer") from error
            if self._high_water.lost:
                self.generation += 1
            elif registered is not None:
                rate, records = self._settings.rate, registered.records
                now = time.time()
                self._known = {
                    name: _Known(record.producer(rate), record.digests)
                    for name, record in records.items()
                    if record.expires is None or now < record.expires
                }
                ends = [record.expires for record in records.values() if record.secrets and record.expires is not None]
                next_end = min((end for end in ends if end > now), default=math.inf)
                KEYS_EXPIRE.set(0 if math.isinf(next_end) else next_end)
                if any("post" in record.verbs for record in records.values()):
                    self._high_water.require_keys()
                    self._key_required = not self._settings.open
                self._read = _Read(registered.version, next_end)
                self.generation += 1
                # An API key may have lost the right to read some boards.
                for (name, digest), reader in list(self._readers.items()):
                    held = self._known.get(name)
                    reader.opens = held.producer.opens if held is not None and digest in held.digests else NO_BOARDS
                    if reader.opens is NO_BOARDS:
                        del self._readers[name, digest]
                self.on_revoked()
            self._checked = started
            if self._lapse is not None:
                self._lapse.cancel()
            self._lapse = asyncio.get_running_loop().call_later(self._fresh_until - time.monotonic(), self._expire)

    async def run(self) -> None:
        """Check the store repeatedly, until cancelled."""
        is_away = False
        noted = time.monotonic()
        try:
            while True:
                fault = "can't read the API keys"
                try:
                    await self.open()
                    if time.monotonic() >= noted + _NOTING:
                        fault = "can't note the uses of API keys"
                        noted = time.monotonic()
                        await self._store.note_uses(*self._uses)
                        self.generation += 1  # ends remembered results, so that the next requests record their uses
                except StoreUnavailableError as error:
                    if not is_away:
                        log.warning(fault, reason=str(error))
                    is_away = True
                else:
                    is_away = False
                await asyncio.sleep(_PAUSE)
        finally:
            if self._lapse is not None:
                self._lapse.cancel()

    def identify(
        self, authorization: bytes | None, requester: Requester, verb: Verb = "post", *, kept: bool = False
    ) -> Principal:
        """Find the producer whose secret is in the `Authorization` header.

        Without this header, return the network's anonymous producer. With `kept`, an API key that was valid when the
        store last answered is enough.

        For a request without an API key, check that no page of another site has sent it. A request with an API key
        needs no such check, because browsers send no API keys by themselves.
        """
        if self._high_water.lost and not kept:
            raise ProblemError("epoch_lost", EPOCH_LOST_DETAIL, retry_after=60)
        if authorization is None and self._anonymous_may(verb, requester):
            requester.require_origin()
            return anonymous(requester.network, self._settings.rate, admin=verb == "admin")
        if time.monotonic() >= self._fresh_until and not kept:
            raise StoreUnavailableError("can't read the API keys")
        if authorization is None:
            raise ProblemError(
                "credentials_required",
                f"send the header `Authorization: Bearer <id>.<secret>`; {_ADVICE[verb]} creates an API key",
                headers={"WWW-Authenticate": _CHALLENGE},
            )
        producer, secret = parse_bearer(authorization) or ("", b"")
        known = self._known.get(producer)
        # An unknown id takes as much work as a known id, so the response time does not reveal which ids exist.
        if not matches(NO_DIGESTS if known is None else known.digests, secret) or known is None:
            raise ProblemError(
                "credentials_invalid",
                "the API key is unknown, expired or revoked",
                headers={"WWW-Authenticate": f'{_CHALLENGE}, error="invalid_token"'},
            )
        self._uses.digests.add(digest_of(secret))
        return known.producer

    def note_refusal(self, producer: str) -> None:
        """Count a request of an API key that its rate has refused."""
        self._uses.refused[producer] += 1

    def authorize(self, authorization: bytes | None, requester: Requester, verb: Verb = "post") -> Principal:
        """Find the producer of a request as `identify` does, and check that it may do `verb`."""
        producer = self.identify(authorization, requester, verb)
        producer.require(verb)
        return producer

    def holder(self, name: str, fingerprint: str) -> Principal | None:
        """Find the producer with the id `name`. Return None if its secret with the fingerprint is no longer valid."""
        if self._high_water.lost:
            raise ProblemError("epoch_lost", EPOCH_LOST_DETAIL, retry_after=60)
        if time.monotonic() >= self._fresh_until:
            raise StoreUnavailableError("can't read the API keys")
        known = self._known.get(name)
        if known is not None:
            for digest in known.digests:
                if Secret(digest, 0).fingerprint == fingerprint:
                    self._uses.digests.add(digest)
                    return known.producer
        return None

    def reader_of(
        self, fields: Headers, requester: Requester, query: Mapping[str, str] = _NO_QUERY, session: Reader = NOBODY
    ) -> Reader:
        """Find the reader by the header fields of a request, its query, and its `session` of the admin page.

        An `Authorization` header counts first, then a `token` in the query, then the session, then the cookie with a
        token. Pages of other origins can't use the cookies of their visitors.
        """
        authorization = cookie = None
        for name, value in fields:
            if name == b"authorization" and authorization is None:
                authorization = value
            elif name == b"cookie" and b"live-token-" in value and cookie is None:
                cookie = value
        if authorization is not None:
            return self.reader(authorization)
        if "token" in query:
            return self.token_reader(query["token"].encode())
        if session is not NOBODY:
            return session
        if cookie is not None and requester.is_own_page:
            name = requester.cookie("token", self._settings.root_path).encode() + b"="
            for part in cookie.split(b";"):
                if part.strip().startswith(name):
                    return self.token_reader(part.strip().removeprefix(name))
        return NOBODY

    def token_reader(self, token: bytes) -> Reader:
        """Find the reader of a viewer token. A refused token gives a reader who may read public boards only."""
        if self.tokens is None:
            return _NO_TOKENS
        return self.tokens.reader(token) if _TOKEN.fullmatch(token) else _NO_TOKEN

    def reader(self, authorization: bytes) -> Reader:
        """Find the reader of the API key or viewer token in an `Authorization` header.

        Invalid credentials are no error, because everybody may read public boards. Each secret of an API key has one
        reader at a time, who loses the private boards when the secret is revoked.
        """
        if (token := _BEARER_TOKEN.fullmatch(authorization)) is not None:
            return self.token_reader(token[1])
        if (parsed := parse_bearer(authorization)) is None:
            return NOBODY
        if self._high_water.lost or time.monotonic() >= self._fresh_until:
            return _UNSURE
        name, secret = parsed
        known = self._known.get(name)
        if not matches(NO_DIGESTS if known is None else known.digests, secret) or known is None:
            return _UNKNOWN
        opens = known.producer.opens
        if opens is NO_BOARDS:
            return Reader(fault=_MAY_NOT_READ, api_key=name)
        digest = digest_of(secret)
        self._uses.digests.add(digest)
        reader = self._readers.get((name, digest))
        if reader is None:
            reader = self._readers[name, digest] = Reader(opens, api_key=name)
        return reader

    def needs_key(self, requester: Requester) -> bool:
        """Tell whether a client can post only with an API key."""
        return not self._anonymous_may("post", requester)

    def _anonymous_may(self, verb: Verb, requester: Requester) -> bool:
        required = self._key_required or self._high_water.facts.keys_required
        if not (self._settings.open or (self._read.version is not None and not required)):
            return False
        if verb == "read":
            return False
        if verb == "admin":
            return self._settings.anonymous_admin and requester.at_the_console
        return self._settings.open or requester.at_the_console

    def _expire(self) -> None:
        """Admit nobody: the timer may fire a moment before the last check is too old."""
        self._checked = float("-inf")
        self.generation += 1


def matches(digests: Sequence[bytes], secret: bytes) -> bool:
    """Tell whether a secret has one of the digests, in constant time."""
    digest = digest_of(secret)
    found = False
    for kept in digests:
        found |= hmac.compare_digest(kept, digest)
    return found
