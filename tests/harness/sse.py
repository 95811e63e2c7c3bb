"""A viewer of server-sent events, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import msgspec

from tests.harness.viewer import ModelViewer

PATIENCE: Final = httpx.Timeout(180)


class Event(msgspec.Struct, frozen=True):
    """One received event: `lines` are its fields, in order."""

    lines: tuple[tuple[str, str], ...]

    def __getitem__(self, name: str) -> str | None:
        return dict(self.lines).get(name)

    @property
    def message(self) -> dict[str, Any]:
        """The decoded message."""
        found: dict[str, Any] = msgspec.json.decode(self["data"] or "{}")
        return found


class Stream:
    """An open stream that is read event by event."""

    def __init__(self, response: httpx.Response, model: ModelViewer) -> None:
        self.response = response
        self.model = model
        self.last_id: str | None = None
        self._lines = response.aiter_lines()

    async def next(self) -> Event | None:
        """The next event, which the model applies, or None at the end."""
        lines: list[tuple[str, str]] = []
        async for line in self._lines:
            if line:
                name, _, value = line.partition(":")
                lines.append((name, value.removeprefix(" ")))
                continue
            event = Event(tuple(lines))
            if event["event"] is not None:
                assert event["event"] == event.message["type"]
                self.model.receive(event["data"] or "")
            self.last_id = event["id"] or self.last_id
            return event
        assert not lines, "the stream ended within an event"
        return None

    async def until(self, *types: str) -> Event:
        """Read events, and return the first one of these types."""
        while (event := await self.next()) is not None:
            if event["event"] in types:
                return event
        raise AssertionError(f"the stream ended without {types}")

    async def follow(self, offset: int) -> None:
        """Read events until the model reaches an offset."""
        while self.model.offset < offset:
            assert await self.next() is not None


@asynccontextmanager
async def streaming(
    client: httpx.AsyncClient, query: str = "", model: ModelViewer | None = None, board: str = "posts", **headers: str
) -> AsyncIterator[Stream]:
    """Open the stream of a board. The names of `headers` have underscores instead of hyphens."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.stream("GET", f"/v1/boards/{board}/stream{query}", headers=fields, timeout=PATIENCE) as response:
        assert response.status_code == 200, await response.aread()
        yield Stream(response, model or ModelViewer())
