"""What a driver sends: a plan that travels to it as JSON, and the requests that it stands for, ready-made."""

import random
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

ZIPF_EXPONENT: Final = 1.1


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys events are for: of `count` keys each in turn, or drawn evenly, or most of them for few (Zipf)."""

    count: int
    order: Literal["each", "uniform", "zipf"] = "uniform"
    seed: int = 0


class Posts(msgspec.Struct, frozen=True, kw_only=True, tag="posts"):
    """POST /v1/events with `events` likes in each body: one as a bare object, several as an array."""

    events: int
    keys: Keys


class Gets(msgspec.Struct, frozen=True, kw_only=True, tag="gets"):
    """GET of one path."""

    path: str


class Pairs(msgspec.Struct, frozen=True, kw_only=True, tag="pairs"):
    """Bare commands: for each like HINCRBY on the hash `slot` and ZINCRBY on `ranking`, `events` likes in one write."""

    events: int
    keys: Keys
    ranking: str = "bare:ranking"
    slot: str = "bare:slot"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to send where: over `connections`, each with one request under way; the first `warmup` are not timed.

    `address` is `host:port`, or the path of a unix socket. An answer counts only if its body begins with `expect`.
    """

    address: str
    content: Posts | Gets | Pairs
    connections: int
    requests: int
    warmup: int = 0
    expect: str = "{"


def make_requests(plan: Plan) -> list[bytes]:
    """Every request of a plan, the ones for the warm-up first."""
    wanted = plan.warmup + plan.requests
    match plan.content:
        case Gets(path=path):
            return [f"GET {path} HTTP/1.1\r\nHost: {plan.address}\r\n\r\n".encode()] * wanted
        case Posts(events=events, keys=keys):
            return [_post(names, plan.address) for names in _bodies(keys, wanted, events)]
        case Pairs(events=events, keys=keys) as pairs:
            return [_commands(names, pairs) for names in _bodies(keys, wanted, events)]


def _bodies(keys: Keys, bodies: int, events: int) -> Iterator[Sequence[str]]:
    """The names of the keys of each body; the same seed gives the same ones to every kind of content."""
    wanted = bodies * events
    if keys.order == "each":
        numbers = [number % keys.count for number in range(wanted)]
    else:
        exponent = ZIPF_EXPONENT if keys.order == "zipf" else 0
        weights = [rank**-exponent for rank in range(1, keys.count + 1)]
        numbers = random.Random(keys.seed).choices(range(keys.count), weights, k=wanted)
    names = [f"post-{number:06d}" for number in numbers]
    for first in range(0, wanted, events):
        yield names[first : first + events]


def _post(names: Sequence[str], host: str) -> bytes:
    likes = [{"key": name} for name in names]
    body = msgspec.json.encode(likes if len(likes) > 1 else likes[0])
    head = (
        f"POST /v1/events HTTP/1.1\r\nHost: {host}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _commands(names: Sequence[str], pairs: Pairs) -> bytes:
    return b"".join(
        _command("HINCRBY", pairs.slot, name, "1") + _command("ZINCRBY", pairs.ranking, "1", name) for name in names
    )


def _command(*words: str) -> bytes:
    return (f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)).encode()
