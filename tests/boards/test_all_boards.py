"""All boards of a store, as commands read them."""

import pytest

from live.boards.admin import BoardAdmin
from live.boards.all_boards import all_boards
from live.domain.board import Boards
from live.errors import SetupError
from live.store.connection.client import connect
from live.store.registry.definitions import Definition
from tests.harness.boards import rolling_board
from tests.harness.settings import fresh_settings


async def test_boards_of_the_file_and_of_the_store_are_read(any_store: str) -> None:
    """Run-time boards have their epochs. The file has precedence. A half-created or half-deleted board is left out."""
    settings = fresh_settings(any_store)
    client, in_file = connect(any_store, settings), Boards([rolling_board()])
    try:
        admin = BoardAdmin(client, settings, in_file)
        await admin.put("made", {"window": "forever"}, "ann")
        made = await admin.defined("made")
        assert made is not None
        for name, definition in {
            "posts": Definition(epoch="e", choices={}),
            "begun": Definition(epoch="e", choices={}, state="making"),
            "left": Definition(epoch="e", choices={}, state="leaving"),
        }.items():
            assert await admin.definitions.keep((await admin.definitions.load()).version, name, definition, None)
        found = await all_boards(client, settings, in_file)
        assert {name: (board.title, epoch) for name, (board, epoch) in found.items()} == {
            "posts": (rolling_board().title, ""),
            "made": ("made", made.epoch),
        }
        assert list(await all_boards(client, settings)) == ["posts", "made"]
    finally:
        await client.aclose()


async def test_a_definition_of_a_later_version_is_named(any_store: str) -> None:
    """If one definition can't be read, a command names its board and stops. It does not go on with the other boards."""
    settings = fresh_settings(any_store)
    client = connect(any_store, settings)
    try:
        admin = BoardAdmin(client, settings, Boards([]))
        later = Definition(epoch="e", choices={"window": "of the moon"})
        assert await admin.definitions.keep((await admin.definitions.load()).version, "later", later, None)
        with pytest.raises(SetupError, match="the definition of board 'later' can't be read"):
            await all_boards(client, settings, Boards([]))
    finally:
        await client.aclose()
