"""All boards by id, for the checks of a definition against other boards."""

from collections.abc import Iterator, Mapping

from live.boards.definition import DefinitionError, read_board
from live.domain.board import Board, Boards
from live.store.registry.definitions import Definitions


class AllBoards(Mapping[str, Board]):
    """The boards of the boards file and the live run-time boards, with one board that is created or changed.

    Decode a run-time board only when a check asks for it. Most checks ask for none.
    """

    def __init__(self, in_file: Boards, found: Definitions, changed: Board) -> None:
        self._in_file = in_file.by_id
        self._changed = changed
        self._found = found.boards

    def __getitem__(self, board: str) -> Board:
        if board == self._changed.id:
            return self._changed
        if board in self._in_file:
            return self._in_file[board]
        definition = self._found[board]
        if definition.state == "live":
            try:
                return read_board(board, definition.choices)
            except DefinitionError:  # created by a later version of the server
                pass
        raise KeyError(board)

    def __iter__(self) -> Iterator[str]:
        yield self._changed.id
        yield from (board for board in self._in_file if board != self._changed.id)
        for board, definition in self._found.items():
            if definition.state == "live" and board != self._changed.id and board not in self._in_file:
                yield board

    def __len__(self) -> int:
        return sum(1 for _ in self)
