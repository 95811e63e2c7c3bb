"""The requests of a plan as prepared bytes, which a driver only has to write."""

import os
import random
from base64 import b32encode
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from bench.plans import BARE_RANKING, BARE_SLOT, Calls, Gets, Members, Pairs, Plan, Posts, Says

ZIPF_EXPONENT: Final = 1.1
_ID_TIME: Final = "01KB2Q7T4N"  # the ten characters of a ULID for its time; the other sixteen are random


def make_requests(plan: Plan) -> list[bytes]:
    """Make all requests of a plan, starting with those of the warm-up."""
    wanted = plan.load.warmup + plan.load.requests
    match plan.content:
        case Gets(paths=paths, etag=etag):
            made = [_get(plan.address, path, etag) for path in paths]
            return [made[number % len(made)] for number in range(wanted)]
        case Posts(events=events, members=members, ids=ids, says="like"):
            return [_post(plan, _likes(names, ids=ids)) for names in _bodies(members, wanted, events)]
        case Posts(events=events, members=members, says=says):
            chance = random.Random(members.seed)
            return [_post(plan, _events(names, says, chance)) for names in _bodies(members, wanted, events)]
        case Calls(members=members, script=script):
            return [_call(plan, script, *names) for names in _bodies(members, wanted, 1)]
        case Pairs(events=events, members=members):
            return [_commands(names) for names in _bodies(members, wanted, events)]


def _get(address: str, path: str, etag: str) -> bytes:
    known = f"If-None-Match: {etag}\r\n" if etag else ""
    return f"GET {path} HTTP/1.1\r\nHost: {address}\r\n{known}\r\n".encode()


def _bodies(members: Members, bodies: int, events: int) -> Iterator[Sequence[str]]:
    """Return the members of each body. The same seed gives the same members for every content."""
    wanted = bodies * events
    if members.order == "each":
        numbers = [number % members.count for number in range(wanted)]
    else:
        exponent = ZIPF_EXPONENT if members.order == "zipf" else 0
        weights = [rank**-exponent for rank in range(1, members.count + 1)]
        numbers = random.Random(members.seed).choices(range(members.count), weights, k=wanted)
    names = [f"post-{number:06d}" for number in numbers]
    for first in range(0, wanted, events):
        yield names[first : first + events]


def _likes(names: Sequence[str], *, ids: bool = False) -> bytes:
    likes = [{"key": name, "id": _new_id()} if ids else {"key": name} for name in names]
    return msgspec.json.encode(likes if len(likes) > 1 else likes[0])


def _events(names: Sequence[str], says: Says, chance: random.Random) -> bytes:
    makers: dict[str, Callable[[], dict[str, object]]] = {
        "score": lambda: {"amount": chance.randrange(1_000_000)},
        "vote": lambda: {"actor": f"voter-{chance.randrange(100_000):06d}"},
        "run": lambda: {"fields": {"level": chance.randrange(100), "seconds": chance.randrange(100_000)}},
    }
    make = makers[says]
    return msgspec.json.encode([{"key": name, **make()} for name in names])


def _new_id() -> str:
    """Make an id as long as a ULID. It does not depend on a seed, so that no two rounds send the same id."""
    return _ID_TIME + b32encode(os.urandom(10)).decode()


def _post(plan: Plan, body: bytes) -> bytes:
    head = (
        f"POST /v1/events HTTP/1.1\r\nHost: {plan.address}\r\n{_authorization(plan)}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _authorization(plan: Plan) -> str:
    return f"Authorization: Bearer {plan.key}\r\n" if plan.key else ""


def _call(plan: Plan, script: str, name: str) -> bytes:
    body = f"EVALSHA/{script}/2/{BARE_SLOT}/{BARE_RANKING}/{name}"
    return f"POST / HTTP/1.1\r\nHost: {plan.address}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def _commands(names: Sequence[str]) -> bytes:
    return b"".join(
        _command("HINCRBY", BARE_SLOT, name, "1") + _command("ZINCRBY", BARE_RANKING, "1", name) for name in names
    )


def _command(*words: str) -> bytes:
    return (f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)).encode()
