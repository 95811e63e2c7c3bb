"""Two servers on the same boards: one that answers plain reads on the fast path, and one that does not."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import httpx

from live.domain.board_file import parse_boards
from live.store.board.read import baseline
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually
from tests.harness.wire import CLOSE, connected, request

BOARDS = """
[[board]]
id = "posts"
[[board]]
id = "dense"
ranks = "dense"
types = ["score"]
[[board]]
id = "weeks"
types = ["visit"]
clock = "event"
window = { calendar = "week", keep = 3 }
[[board]]
id = "contest"
types = ["vote"]
window = "forever"
votes = { per_key = 1, per_actor = 4, registered = true }
[[board]]
id = "large"
types = ["shelf"]
[[board]]
id = "empty"
types = ["nothing"]
"""
FRIEND = "https://friend.example"
FIELDS: list[tuple[tuple[str, str], ...]] = [
    (), (), (),
    (("If-None-Match", "*"),),
    (("If-None-Match", "none"), ("If-None-Match", "*")),
    (("If-None-Match", ""),),
    (("If-None-Match", 'W/"x", *'),),
    (("Origin", FRIEND),),
    (("Origin", "https://evil.example"),),
    (("Origin", FRIEND), ("Origin", "https://evil.example")),
    (("X-Forwarded-For", "1.2.3.4"),),
    (("X-Forwarded-For", "1.2.3.4"), ("Forwarded", "for=1.2.3.4")),
    (("Accept-Encoding", "gzip"),),
    (("Accept-Encoding", "br, GZIP;q=0.5"),),
    (("Accept-Encoding", "gzip;q=0, *"),),
    (("Accept-Encoding", "br"), ("Accept-Encoding", "gzip")),
    (("Accept-Encoding", "gzip"), ("Origin", FRIEND)),
    (("Accept-Encoding", "gzip"), ("If-None-Match", "*")),
    (("Content-Length", "0"),),
    (("Authorization", "Bearer x.y"),),
]  # fmt: skip
TRENDS = 15.0  # seconds within which both servers have asked for the newest baseline
VIEWERS = 2.0  # seconds within which each process counts the viewers again


class Both(NamedTuple):
    """A server with the fast path and one without, on the same boards."""

    ours: str
    plain: str

    async def same(self, *sent: bytes) -> bytes:
        """Return the answer that both servers give to these requests. The last request must end the connection."""
        return await self._common(sent, VIEWERS)

    async def same_soon(self, *sent: bytes) -> None:
        """Check that both servers soon give the same answers. Each of them reads a new baseline at its own time."""
        await self._common(sent, TRENDS)

    async def answers(self, *sent: bytes) -> list[bytes]:
        """Return the answers of both servers."""
        return [await answered(url, b"".join(sent)) for url in self]

    async def _common(self, sent: Sequence[bytes], deadline: float) -> bytes:
        async def common() -> bytes | None:
            ours, plain = await self.answers(*sent)
            return ours if ours == plain else None

        answer: bytes = await eventually(common, deadline)
        assert answer.count(b"HTTP/1.1 ") == len(sent), "some requests were not answered"
        return answer


async def answered(url: str, sent: bytes) -> bytes:
    """All bytes until the server closes the connection, without dates, and with sorted header fields."""
    async with connected(url) as wire:
        await wire.send(sent)
        text = await wire.rest()
    return re.sub(rb"(HTTP/1\.1 \d\d\d[^\r]*\r\n)((?:[\w-]+: [^\r]*\r\n)*)", _in_order, text)


def _in_order(head: re.Match[bytes]) -> bytes:
    return head[1] + b"".join(sorted(head[2].splitlines(keepends=True)))


async def fill(client: httpx.AsyncClient) -> None:
    """Post events, register the members of the contest, and make the board `fleeting`."""
    await post(client, *({"key": member, "amount": place} for place, member in enumerate("zyxaéb", 1)))
    await post(client, *({"key": member, "type": "score", "amount": 3, "metadata": {"x": 1}} for member in "abc"))
    await post(client, *({"key": f"book-{number}", "type": "shelf", "amount": number} for number in range(1, 60)))
    days = ("2026-01-05", "2026-01-12", "2026-01-13")
    await post(
        client, *({"key": member, "type": "visit", "time": f"{day}T12:00:00Z"} for day in days for member in "ab")
    )
    for name in ("Ada", "Bo"):
        assert (await client.put(f"/v1/boards/contest/records/{name}", json={"song": name})).status_code == 201
    await post(client, {"key": "Ada", "type": "vote", "actor": "me"})
    assert (await client.put("/v1/boards/fleeting", json={"idle_ttl": "1h"})).status_code == 201


@asynccontextmanager
async def both_servers(store: str, **changes: Any) -> AsyncIterator[Both]:
    """Yield both servers with the same events."""
    settings = fresh_settings(store, anonymous_admin=True, **changes)
    boards = parse_boards(BOARDS)
    with patch.object(baseline, "_LONGEST_WAIT", 0.5):
        async with (
            run_server(settings, boards) as ours,
            run_server(settings, boards, plain=True) as plain,
            httpx.AsyncClient(base_url=ours) as client,
        ):
            await fill(client)
            both = Both(ours, plain)
            await both.same_soon(read("/v1/boards/fleeting"))
            yield both


def read(target: str, *fields: tuple[str, str], method: str = "GET") -> bytes:
    """A request that reads, and asks the server to close the connection."""
    return request(method, target, *fields, CLOSE)


def tag_in(answer: bytes) -> str:
    """The `ETag` of an answer."""
    found = re.search(rb"etag: (.*)\r", answer)
    assert found is not None
    return found[1].decode()
