"""What a driver is to send, as a plan that travels to it as JSON."""

from typing import Final, Literal

import msgspec

BARE_SLOT: Final = "bare:slot"
BARE_RANKING: Final = "bare:ranking"

Says = Literal["like", "score", "vote", "run"]


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys events are for: of `count` keys each in turn, or drawn evenly, or most of them for few (Zipf)."""

    count: int
    order: Literal["each", "uniform", "zipf"] = "uniform"
    seed: int = 0


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What a request holds; `events` of them."""

    events: int = 1


class Posts(Content, frozen=True, kw_only=True, tag="posts"):
    """POST /v1/events: one like as a bare object, several as an array; with `ids`, each has one never seen before.

    `says` is what an event says besides: a `score` has an amount, a `vote` an actor, a `run` two fields.
    """

    keys: Keys
    ids: bool = False
    says: Says = "like"


class Frames(Content, frozen=True, kw_only=True, tag="frames"):
    """A like a text frame to the WebSocket /v1/events/live, with `in_flight` of them unanswered on each connection."""

    keys: Keys
    in_flight: int


class Gets(Content, frozen=True, kw_only=True, tag="gets"):
    """GET of one path."""

    path: str


class Pairs(Content, frozen=True, kw_only=True, tag="pairs"):
    """Bare commands: for each like HINCRBY on `BARE_SLOT` and ZINCRBY on `BARE_RANKING`, all likes in one write."""

    keys: Keys


class Calls(Content, frozen=True, kw_only=True, tag="calls"):
    """A POST to webdis that calls the script of this SHA-1 for one like, on the keys of the bare commands."""

    keys: Keys
    script: str


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests go over how many connections; `warmup` further ones go ahead of them and are not timed."""

    requests: int
    connections: int
    warmup: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to send where.

    `address` is `host:port`, or the path of a unix socket; `key` is the producer's. An answer counts only if its body
    begins with `expect`.
    """

    address: str
    content: Posts | Frames | Gets | Pairs | Calls
    load: Load
    expect: str = "{"
    key: str = ""
