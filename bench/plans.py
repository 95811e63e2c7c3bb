"""What a driver has to send: a plan that it receives as JSON."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

BARE_SLOT: Final = "bare:slot"
BARE_RANKING: Final = "bare:ranking"

Says = Literal["like", "score", "vote", "run"]


class Members(msgspec.Struct, frozen=True, kw_only=True):
    """The members of events: each of `count` members in turn, or drawn uniformly or by a Zipf distribution."""

    count: int
    order: Literal["each", "uniform", "zipf"] = "uniform"
    seed: int = 0


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a request, with `events` events."""

    events: int = 1


class Posts(Content, frozen=True, kw_only=True, tag="posts"):
    """POST /v1/events: one like as an object, several as an array. With `ids`, each has a new id.

    `says` selects further content: a `score` has an amount, a `vote` an actor, a `run` two fields.
    """

    members: Members
    ids: bool = False
    says: Says = "like"


class Gets(Content, frozen=True, kw_only=True, tag="gets"):
    """GET of some paths in turn. With an `etag`, the answer must be 304."""

    paths: Sequence[str]
    etag: str = ""


class Pairs(Content, frozen=True, kw_only=True, tag="pairs"):
    """Bare commands: HINCRBY on `BARE_SLOT` and ZINCRBY on `BARE_RANKING` for each like, all in one write."""

    members: Members


class Calls(Content, frozen=True, kw_only=True, tag="calls"):
    """A POST to webdis that runs the script with this SHA-1 for one like, on the store keys of the bare commands."""

    members: Members
    script: str


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The number of requests and connections; `warmup` further requests go first and are not timed."""

    requests: int
    connections: int
    warmup: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to send, and where.

    `address` is `host:port` or the path of a unix socket; `key` is the API key. An answer counts only if its body
    begins with `expect`.
    """

    address: str
    content: Posts | Gets | Pairs | Calls
    load: Load
    expect: str = "{"
    key: str = ""
