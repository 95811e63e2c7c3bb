"""Checks of new and changed boards against other boards, limits of prefixes, and the rights of who changes them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from live.boards.definitions import DefinitionError, read_board
from live.domain.board import Board, Boards
from live.domain.board_file import exposure, forgetting, part_mistakes, text_mistakes
from live.domain.choices import DEFAULT_MAX_MEMBERS
from live.domain.limits import PrefixLimits, limits_of
from live.domain.producer import Principal
from live.errors import ProblemError
from live.settings import Settings
from live.store.registry.definitions import Definition, Definitions


class BoardChecks:
    """The checks, with the settings of the server."""

    def __init__(self, settings: Settings) -> None:
        self.most = settings.max_boards
        self._visibility = settings.visibility

    def require_place(self, found: Definitions, board: str) -> None:
        """Check the limits in total and of the prefix. Boards in creation count too."""
        if len(found.boards) >= self.most:
            detail = f"the setting max_boards allows {self.most} boards: delete one first"
            raise ProblemError("too_many_boards", detail)
        limits = limits_of(board, found.file.limits)
        if limits is not None and limits.boards is not None:
            held = sum(name.startswith(limits.prefix) for name in found.boards)
            if held >= limits.boards:
                detail = (
                    f"there are {held} boards `{limits.pattern}`, and {limits.name('boards')} allows {limits.boards}: "
                    "delete one first, or let an operator raise the limit"
                )
                raise ProblemError("too_many_boards", detail)

    def require_members(self, found: Definitions, made: Board) -> None:
        """Check that the prefix allows the sum of the `max_members` of its boards, including the new board."""
        limits = limits_of(made.id, found.file.limits)
        if limits is None or limits.members is None:
            return
        others = sum(members for name, members in _members(found, limits).items() if name != made.id)
        left = limits.members - others
        if made.max_members > left:
            advice = f"set it to {left} or less" if left > 0 else "lower it there, or delete a board"
            detail = (
                f"`max_members` is {made.max_members}, the other boards `{limits.pattern}` have {others}, and "
                f"{limits.name('members')} allows {limits.members} in all: {advice}, or let an operator raise the limit"
            )
            raise ProblemError("too_many_members", detail)

    def _hidden_from(self, maker: Principal | None) -> Callable[[Board], bool]:
        if maker is None or not maker.is_limited:
            return lambda _board: False
        default = self._visibility
        return lambda board: (board.visibility or default) != "public" and board.id not in maker.opens

    def misfits(self, found: Definitions, board: str, held: Definition, others: "OtherBoards") -> Iterator[str]:
        """Find parts and unions that a changed board no longer fits.

        It must not be more visible than its parts, nor remember ids for a shorter time. The same goes for its unions.
        """
        new = others[board]
        for name, definition in found.boards.items():
            if definition.parts.get(board) == held.epoch and name in others:
                if exposure(others[name], new):
                    detail = (
                        "a union adds this board up, and more people may read the union; set its `visibility` first"
                    )
                    yield f"board {board!r}: {detail}"
                elif forgetting(others[name], new):
                    detail = "a union adds this board up, and would forget ids sooner; change its `dedupe_window` first"
                    yield f"board {board!r}: {detail}"
        for part, epoch in held.parts.items():
            current = found.boards[part].epoch if part in found.boards else ""
            if part not in others or epoch != current:
                continue
            if fault := exposure(new, others[part]) or forgetting(new, others[part]):
                yield f"board {board!r}: {fault}"

    def checked(
        self, found: Definitions, board: str, choices: dict[str, Any], old: Board | None, maker: Principal | None
    ) -> Board:
        """Make the board that some choices define, and check it against the other boards.

        If the board is a union, check only its new parts. So a board can change even if another union is invalid. A
        union can change even if one of its parts was deleted.
        """
        try:
            made = read_board(board, choices)
        except DefinitionError as error:
            raise ProblemError("board_invalid", str(error)) from None
        others = OtherBoards(found, {board: made}, self._hidden_from(maker))
        parts = set(made.union) - set(old.union if old else ())
        if mistakes := [*text_mistakes(made), *part_mistakes(made, parts, others)]:
            raise ProblemError("board_invalid", "\n".join(mistakes))
        return made


class OtherBoards(Mapping[str, Board]):
    """The boards by id, as they will be after a change, without hidden boards. A definition is checked against them.

    Only the boards for which a check asks are decoded.
    """

    def __init__(
        self,
        found: Definitions,
        changed: Mapping[str, Board],
        is_hidden: Callable[[Board], bool] = lambda _board: False,
    ) -> None:
        self._found = found.boards
        self._changed = changed
        self._is_hidden = is_hidden

    def __getitem__(self, board: str) -> Board:
        if board in self._changed:
            return self._changed[board]
        definition = self._found[board]
        if definition.state == "live":
            with suppress(DefinitionError):  # a later version of the server has created the board
                found = read_board(board, definition.choices)
                if not self._is_hidden(found):
                    return found
        raise KeyError(board)

    def __iter__(self) -> Iterator[str]:
        yield from self._changed
        yield from (board for board in self._found if board not in self._changed and board in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _members(found: Definitions, limits: PrefixLimits) -> dict[str, int]:
    most = limits.members or DEFAULT_MAX_MEMBERS
    return {
        name: min(definition.choices.get("max_members", DEFAULT_MAX_MEMBERS), most)
        for name, definition in found.boards.items()
        if name.startswith(limits.prefix)
    }


def over_limits(found: Definitions, file: Boards, grown: Collection[str]) -> Iterator[str]:
    """Find limits of the file that all boards together exceed, because of boards that are new or take more members."""
    for limits in file.limits:
        if not any(name.startswith(limits.prefix) for name in grown):
            continue
        own = {name: board.max_members for name, board in file.by_id.items() if name.startswith(limits.prefix)}
        members = _members(found, limits) | own
        advice = "leave some out or delete some, or raise the limit"
        if limits.boards is not None and len(members) > limits.boards:
            yield f"{limits.name('boards')} is {limits.boards}, and there would be {len(members)} of them: {advice}"
        if limits.members is not None and (total := sum(members.values())) > limits.members:
            yield (
                f"{limits.name('members')} is {limits.members}, and the `max_members` of all these boards would add up "
                f"to {total}: lower some, or raise the limit"
            )


def ties_to_unions(found: Definitions, held: Definition, old: Board, new: Board) -> Iterator[str]:
    """Find rules that a union and its parts have in common."""
    if (old.shape.window, old.operator, old.score) == (new.shape.window, new.operator, new.score):
        return
    common = "`window`, `operator` and `score` can't change"
    if held.parts:
        yield f"{common}: a union has those of its boards"
    for name, definition in found.boards.items():
        if definition.parts.get(new.id) == held.epoch:
            yield f"{common}: the union {name} adds this board up, and has the same"


def require_rights(maker: Principal | None, new: Board, old: Board | None) -> None:
    """Check the rights to all boards and event types that a changed board newly reads."""
    if maker is None:
        return
    for part in new.union:
        if old is None or part not in old.union:
            maker.require_board(part)
    reads_as_before = old is not None and old.categories == new.categories
    maker.require_sources(new.source - old.source if old is not None and reads_as_before else new.source)
