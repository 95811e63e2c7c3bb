"""A server whose producers have API keys."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.domain.producer import Scope
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings


@asynccontextmanager
async def with_keys(store: str, **changes: Any) -> AsyncIterator[tuple[str, ProducerStore, dict[str, str]]]:
    """A server with two boards, its producers, and their API keys."""
    settings = fresh_settings(store, **changes)
    client = connect(store, settings)
    producers = ProducerStore(client)
    scopes = {"all": Scope(), "posts": Scope(boards=("posts",)), "admin": Scope(verbs=("admin",))}
    keys = {name: f"{name}.{(await producers.add(name, scope))[1]}" for name, scope in scopes.items()}
    boards = [rolling_board(), make_board(Choices(id="others", types=("other",)))]
    try:
        async with run_server(settings, boards) as url:
            yield url, producers, keys
    finally:
        await client.aclose()


def bearer(key: str) -> tuple[str, str]:
    """The header field with an API key."""
    return "Authorization", f"Bearer {key}"
