"""All boards of a store: the boards of the boards file and the run-time boards."""

from live.boards.definition import DefinitionError, read_board
from live.domain.board import Board, Boards
from live.domain.board_file import load_boards
from live.errors import SetupError
from live.settings import Settings
from live.store.connection.client import Store
from live.store.registry.definitions import DefinitionStore


async def all_boards(client: Store, settings: Settings, in_file: Boards | None = None) -> dict[str, tuple[Board, str]]:
    """Read every board and the epoch of each run-time board. Boards of the boards file have an empty epoch.

    `in_file` are the boards of the boards file, if they are loaded already.

    Raises:
        SetupError: the boards file has mistakes, or the definition of a run-time board can't be read.
    """
    in_file = in_file or load_boards(settings.boards)
    found = {name: (board, "") for name, board in in_file.by_id.items()}
    for name, definition in (await DefinitionStore(client, settings.key_prefix).load()).boards.items():
        if definition.state == "live" and name not in found:
            try:
                found[name] = read_board(name, definition.choices), definition.epoch
            except DefinitionError as error:
                raise SetupError(f"the definition of board {name!r} can't be read: {error}") from None
    return found
