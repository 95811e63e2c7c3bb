"""Replies as plain data that every transport can send; problems are RFC 9457 documents."""

import gzip
import re
from collections.abc import Iterable
from functools import cached_property
from http import HTTPStatus
from types import SimpleNamespace
from typing import Annotated, Final

import msgspec
import structlog

from live.domain.meaning import DETAIL, says
from live.errors import (
    EPOCH_LOST_DETAIL,
    PROBLEMS,
    RETRYABLE,
    EpochLostError,
    JournalBehindError,
    ProblemError,
    StoreUnavailableError,
)
from live.metrics import PROBLEMS_ANSWERED

_NAMES: Final = ("gzip", "x-gzip", "*")  # if a client names several of these, the first in this order counts
_WEIGHT: Final = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")

log = structlog.get_logger()

_LEAST_GZIPPED: Final = 1024  # bytes of a body that is worth compressing; a smaller body fits into one packet
_LEVEL: Final = 4  # higher levels save one byte in a hundred, and take a fifth longer
_RETRY_AFTER: Final = 2  # seconds after which a client should try an unavailable store again

Headers = tuple[tuple[bytes, bytes], ...]

CONTENT_SECURITY_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
POLICY_HEADER: Final = (b"content-security-policy", CONTENT_SECURITY_POLICY)
SECURITY_HEADERS: Final = (
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


_PRIVATE: Final = (b"cache-control", b"private, no-store")
_READER_FIELDS: Final = (b"Authorization", b"Cookie")  # the request fields that identify the reader
VARY_BY_READER: Final = (b"vary", b", ".join(_READER_FIELDS))


def private(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return header fields for a response that only its reader may keep."""
    varied = [part.strip() for name, value in headers if name == b"vary" for part in value.split(b",")]
    varied += [field for field in _READER_FIELDS if field not in varied]
    others = [field for field in headers if field[0] not in {b"cache-control", b"vary"}]
    return [*others, _PRIVATE, (b"vary", b", ".join(varied))]


class Reply(msgspec.Struct, frozen=True, dict=True):
    """An answer. `extra` are header fields in addition to `fixed_headers`. `cache` is the value of `Cache-Control`.

    A 304 has no media type and no body.
    """

    status: int
    media_type: bytes
    body: bytes
    extra: Headers = ()
    cache: bytes = b"no-store"

    @property
    def fixed_headers(self) -> Headers:
        """The header fields that do not depend on the body. Names are in lower case, as ASGI requires."""
        kind = ((b"content-type", self.media_type),) if self.media_type else ()
        return ((b"cache-control", self.cache), *kind)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """All header fields, the length last."""
        length = ((b"content-length", b"%d" % len(self.body)),) if self.media_type else ()
        return [*self.fixed_headers, *self.extra, *length]

    @property
    def most_memory(self) -> int:
        """How many bytes the reply may take, with its compressed form."""
        return 2 * len(self.body)

    @cached_property
    def gzipped(self) -> "Reply":
        """The same reply, compressed for clients that take gzip. A small reply, or one without success, stays as it is.

        The `ETag` of a compressed reply is weak, because both forms have the same `ETag`. The header fields of both
        must vary by `Accept-Encoding`. A reply must not be compressed if it contains both a secret and text that a
        client chooses.
        """
        if len(self.body) < _LEAST_GZIPPED or self.status != HTTPStatus.OK:
            return self
        extra = tuple(
            (name, b"W/" + value if name == b"etag" and not value.startswith(b"W/") else value)
            for name, value in self.extra
        )
        body = gzip.compress(self.body, _LEVEL, mtime=0)
        return msgspec.structs.replace(self, body=body, extra=(*extra, (b"content-encoding", b"gzip")))

    @cached_property
    def private(self) -> "Reply":
        """The same reply with headers for a reader of private boards."""
        fields = private(self.extra)
        return msgspec.structs.replace(self, cache=_PRIVATE[1], extra=tuple(f for f in fields if f is not _PRIVATE))


# Where this process serves the documentation of problems. The application sets it once.
documentation: Final = SimpleNamespace(path="/docs")


class ProblemBody(msgspec.Struct, frozen=True):
    """Why a request was refused, as a problem document (RFC 9457).

    Rely on `code`. `title` and `detail` are for people and may change. `retryable` is true if the reason can pass.
    """

    type: Annotated[str, says("Address of the documentation of `code`, on this server.")]
    title: Annotated[str, says("The problem in a few words.")]
    status: Annotated[int, says("HTTP status.")]
    code: Annotated[str, says("Stable name of the problem.")]
    detail: Annotated[str, DETAIL]
    retryable: Annotated[bool, says("Whether the reason can pass, so that the same request can succeed later.")]


def json_reply(body: bytes) -> Reply:
    """Make a successful reply with a JSON document."""
    return Reply(200, b"application/json", body)


def problem_reply(error: Exception) -> Reply:
    """Make the reply for an error. Details of internal errors stay in the log."""
    problem = as_problem(error)
    PROBLEMS_ANSWERED.labels(problem.code).inc()
    extra = [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
    if problem.retry_after is not None:
        extra.append((b"retry-after", b"%d" % problem.retry_after))
    status, title = PROBLEMS[problem.code]
    kind = f"{documentation.path}#{problem.code}"
    made = ProblemBody(kind, title, status, problem.code, problem.detail, problem.code in RETRYABLE)
    body = msgspec.json.encode(made)
    return Reply(status, b"application/problem+json", body, tuple(extra))


def as_problem(error: Exception) -> ProblemError:
    """Return the problem for an error. Every error that is not a `ProblemError` is logged."""
    match error:
        case ProblemError():
            return error
        case JournalBehindError():
            log.warning("the journal is behind", reason=str(error))
            return ProblemError("journal_behind", "try again later", retry_after=_RETRY_AFTER)
        case StoreUnavailableError():
            log.warning("the store is unavailable", reason=str(error))
            code = "outcome_unknown" if error.unknown else "store_unavailable"
            return ProblemError(code, "try again later", retry_after=_RETRY_AFTER)
        case EpochLostError():
            log.error("the store lost a board", reason=str(error))
            return ProblemError("epoch_lost", EPOCH_LOST_DETAIL, retry_after=60)
        case _:
            log.error("a request failed", exc_info=error)
            return ProblemError("internal_error", "see the server's log")


def takes_gzip(accepted: Iterable[str]) -> bool:
    """Tell whether a client prefers gzip to identity, by its `Accept-Encoding` fields (RFC 9110, section 12.5.3)."""
    weights = weights_of(",".join(accepted).lower())
    gzip = next((weights[name] for name in _NAMES if name in weights), 0.0)
    return gzip > 0 and gzip >= weights.get("identity", 0.0)


def weights_of(accepted: str) -> dict[str, float]:
    """Return what a client accepts, with weights (RFC 9110, section 12.4.2). An invalid weight counts as 0."""
    weights: dict[str, float] = {}
    for part in accepted.split(","):
        value, _, parameter = part.partition(";")
        weight = _WEIGHT.fullmatch(parameter.strip())
        weights[value.strip()] = float(weight[1]) if weight else float(not parameter.strip())
    return weights
