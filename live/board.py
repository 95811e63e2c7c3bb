"""What a board is: a window, an operator, a clock and what feeds it; and the TOML file that defines boards."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from live.errors import SetupError
from live.window import Window

BOARD_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

EventType = Annotated[str, Meta(min_length=1, max_length=64)]


class RollingChoice(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`window = {rolling = "24h", slot = "1h"}` as it stands in the file."""

    rolling: str = "24h"
    slot: str = "1h"


class BoardChoice(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One `[[board]]` table as it stands in the file; every choice but the id has a default."""

    id: str
    title: Annotated[str, Meta(min_length=1, max_length=200)] = ""
    source: Annotated[tuple[EventType, ...], Meta(min_length=1)] = ("like",)
    window: RollingChoice = RollingChoice()
    operator: Literal["incr"] = "incr"
    sort_order: Literal["desc"] = "desc"
    ties: Literal["key"] = "key"
    clock: Literal["server", "event"] = "server"


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A checked board."""

    id: str
    title: str
    source: frozenset[str]
    window: Window
    clock: Literal["server", "event"]


def make_board(choice: BoardChoice) -> Board:
    """Check what types alone can't say.

    Raises:
        ValueError: the id or the window is wrong; the message says which and why.
    """
    if not BOARD_ID.fullmatch(choice.id):
        raise ValueError(f"id = {choice.id!r} does not match ^[a-z0-9][a-z0-9_-]{{0,63}}$")
    return Board(
        id=choice.id,
        title=choice.title or choice.id,
        source=frozenset(choice.source),
        window=Window.parse(choice.window.rolling, choice.window.slot),
        clock=choice.clock,
    )


DEFAULT_BOARD: Final = make_board(BoardChoice(id="posts", title="Most liked"))


class Boards:
    """The boards of this server, by id and by the event type that feeds them."""

    def __init__(self, boards: Iterable[Board]) -> None:
        self.by_id: Mapping[str, Board] = {board.id: board for board in boards}
        self.by_type: dict[str, tuple[Board, ...]] = {}
        for board in self.by_id.values():
            for event_type in board.source:
                self.by_type[event_type] = (*self.by_type.get(event_type, ()), board)


def parse_boards(text: str) -> list[Board]:
    """Read the text of a boards file.

    Raises:
        SetupError: with one line for each mistake, all mistakes of the file at once.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SetupError(f"not TOML: {error}") from None
    tables: Any = document.pop("board", None)
    if not isinstance(tables, list) or not tables:
        raise SetupError('no [[board]] in it; the least is:\n[[board]]\nid = "posts"')
    boards: dict[str, Board] = {}
    mistakes = [f"{name}: there is nothing of this name; boards are [[board]] tables" for name in document]
    for number, table in enumerate(tables, 1):
        name = f"board {number}" + (f" ({table['id']!r})" if isinstance(table, dict) and "id" in table else "")
        try:
            board = make_board(msgspec.convert(table, BoardChoice))
        except ValueError as error:  # msgspec.ValidationError is one
            mistakes.append(f"{name}: {error}")
            continue
        if board.id in boards:
            mistakes.append(f"{name}: another board has this id")
        boards[board.id] = board
    if mistakes:
        raise SetupError("\n".join(mistakes))
    return list(boards.values())


def load_boards(path: Path | None) -> Boards:
    """Read a boards file, or give the one default board.

    Raises:
        SetupError: the file can't be read, or holds mistakes.
    """
    if path is None:
        return Boards([DEFAULT_BOARD])
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"can't read the boards file {path}: {error}") from None
    try:
        return Boards(parse_boards(text))
    except SetupError as error:
        raise SetupError(f"the boards file {path} has mistakes:\n{error}") from None
