"""Boards whose server is gone, while the servers of the other boards answer."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from live.errors import StoreUnavailableError
from live.store.connection.client import Store
from live.store.connection.pipelined import Word

_REASON = "the server of this board is gone"


@contextmanager
def away(*boards: str, takes_all: bool = False) -> Iterator[None]:
    """Let every command on the store keys of some boards fail while in the context.

    `takes_all` is a mutant: a command that fails makes all commands of the same `outcomes` call fail.
    """
    outcomes = Store.outcomes

    def is_away(key: str) -> bool:
        return any(f"{{{board}}}" in key for board in boards)

    def unless_away(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call_one(self: Store, key: str, *words: Word) -> Any:
            if is_away(key):
                raise StoreUnavailableError(_REASON)
            return await call(self, key, *words)

        return call_one

    async def call_many(
        self: Store, commands: Sequence[tuple[str, tuple[Word, ...]]], *, replicated: bool = False
    ) -> list[Any]:
        here = [command for command in commands if not is_away(command[0])]
        if takes_all and len(here) < len(commands):
            return [StoreUnavailableError(_REASON)] * len(commands)
        replies = iter(await outcomes(self, here, replicated=replicated))
        return [StoreUnavailableError(_REASON) if is_away(key) else next(replies) for key, _ in commands]

    with (
        patch.object(Store, "call", unless_away(Store.call)),
        patch.object(Store, "write", unless_away(Store.write)),
        patch.object(Store, "outcomes", call_many),
    ):
        yield
