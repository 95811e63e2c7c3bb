"""The TOML file that defines boards.

An error reports the first invalid choice of each board, or else all its choices that contradict each other.
"""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from live.domain.board import DEFAULT_BOARD, DEFAULT_RETENTION, MOST_REMEMBERED, Board, Boards
from live.domain.choices import BOARD_ID, DEFAULT_MAX_MEMBERS, DEFAULT_TYPES, Choices, Votes
from live.domain.limits import PREFIX, LimitsChoice, PrefixLimits
from live.domain.text import ID_FORM, text_fault, unknown
from live.domain.validation_messages import choice_mistake
from live.domain.window import Periods, Rolling, Sliding, Window, WindowChoice, parse_duration, window_advice
from live.errors import SetupError

C = TypeVar("C", bound=msgspec.Struct)
_AT_WINDOW: Final = " - at `$.window`"  # of msgspec
# Of each choice that is a duration: its least and its most, and whether it is a whole number of seconds.
_DURATIONS: Final[Mapping[type[msgspec.Struct], Mapping[str, Mapping[str, Any]]]] = {
    struct: {
        field.name: meta.extra
        for field in msgspec.structs.fields(struct)
        for meta in getattr(field.type, "__metadata__", ())
        if meta.extra
    }
    for struct in (Choices, Votes)
}


def make_board(choices: Choices) -> Board:
    """Build a board from its choices. Check the rules that the types of the choices can't express."""
    board = Board(**msgspec.structs.asdict(choices))
    if mistakes := list(_mistakes(board)):
        raise ValueError("\n".join(mistakes))
    return board


def _mistakes(board: Board) -> Iterator[str]:
    """Find choices that are invalid or contradict each other."""
    if not BOARD_ID.fullmatch(board.id):
        yield f"id = {board.id!r} is not an id: {ID_FORM}"
    yield from _conflicts(board)
    durations = [*_duration_mistakes(board), *(_duration_mistakes(board.votes, "votes.") if board.votes else ())]
    yield from durations
    if not durations:
        yield from _journal_conflicts(board)
    window: Window | None = None
    try:
        window = board.window
    except ValueError as error:
        yield from str(error).split("\n")
    yield from _window_conflicts(board, window)
    of_fields = [mistake for field in board.score for mistake in field.mistakes()]
    if window is not None and not of_fields:
        try:
            _ = board.packing
        except ValueError as error:
            of_fields = str(error).split("\n")
    yield from (f"score: {line}" for line in of_fields)


def _duration_mistakes(choices: msgspec.Struct, place: str = "") -> Iterator[str]:
    """Find durations that are none, and durations that are too short or too long."""
    for name, limits in _DURATIONS[Votes if isinstance(choices, Votes) else Choices].items():
        if (text := getattr(choices, name)) is None:
            continue
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            yield f"{place}{name}: {error}"
            continue
        least, most = limits.get("least"), limits.get("most")
        if least and seconds < parse_duration(least):
            yield f"{place}{name}: {text!r} is less than {least}"
        elif most and seconds > parse_duration(most):
            yield f"{place}{name}: {text!r} is more than {most}"
        elif limits.get("whole") and seconds != int(seconds):
            yield f"{place}{name}: {text!r} is not a whole number of seconds"


def _conflicts(choice: Board) -> Iterator[str]:
    """Find choices that contradict each other, whatever the window is."""
    if choice.cap is not None and choice.operator == "incr":
        yield "`cap` with `operator = incr`: a record that was cut off would start again from zero; use best or set"
    if choice.zeros and choice.operator != "incr":
        yield f"`zeros` with `operator = {choice.operator}`: an amount of zero is a score there anyway; leave it out"
    if choice.max_amount is not None and choice.operator != "incr":
        yield f"`max_amount` with `operator = {choice.operator}`: it limits only amounts that are added; leave it out"
    if choice.votes is not None and choice.operator != "incr":
        yield f"`votes` with `operator = {choice.operator}`: votes are added; use incr"
    if choice.votes is not None and (choice.scale or choice.format != "number"):
        yield "`scale` or `format` with `votes`: a vote is whole; only `unit` works, like `votes`"
    if choice.unit and choice.format == "duration":
        yield "`unit` with `format = duration`: `1:23` needs no unit; leave it out"
    if choice.votes is not None:
        yield from _vote_mistakes(choice.votes)
    yield from _union_mistakes(choice)
    if choice.score:
        yield from _fields_conflicts(choice)


def _journal_conflicts(choice: Board) -> Iterator[str]:
    if choice.journal == "off":
        for name in ("journal_events", "journal_periods"):
            if getattr(choice, name) is not None:
                yield f"`{name}` with `journal = off`: the journal keeps nothing; leave it out"
        if choice.dedupe_window is not None:
            yield "`dedupe_window` with `journal = off`: only the journal keeps ids for so long; leave it out"
        return
    kept = choice.journal_events or f"{DEFAULT_RETENTION // 86_400}d"
    if parse_duration(choice.dedupe_window or "0s") > parse_duration(kept):
        yield (
            f"`dedupe_window` of {choice.dedupe_window} is longer than the journal keeps events, {kept}; make "
            "`journal_events` as long"
        )


def _fields_conflicts(choice: Board) -> Iterator[str]:
    """Find choices that contradict a score of several fields."""
    if choice.sort_order == "asc":
        yield "`score` with `sort_order = asc`: each field has its own `order`; leave it at desc"
    if choice.max_amount is not None and choice.operator == "incr":
        yield "`max_amount` with `score`: the ranges of the fields limit what is added; leave it out"
    if choice.votes is not None and choice.operator == "incr":
        yield "`votes` with `score`: a vote is one number; leave out one of them"
    if choice.like_button:
        yield "`like_button` with `score`: a like adds 1 and has no fields; leave out one of them"
    if choice.weights is not None:
        yield "`weights` with `score`: each field of a union is the sum of the fields of its boards; leave it out"
    if choice.score_format is not None:
        yield "`unit`, `scale` or `format` with `score`: no unit fits all fields; name it in a field, like `time_ms`"


def _vote_mistakes(votes: Votes) -> Iterator[str]:
    if votes.opens is not None and votes.closes is not None and votes.opens >= votes.closes:
        yield "`votes` closes before it opens"
    if votes.tickets and votes.per_key != 1:
        yield "`votes` with `tickets` needs `per_key = 1`: a ticket has one vote for each member"


def _union_mistakes(choice: Board) -> Iterator[str]:
    if not choice.union:
        if choice.weights is not None:
            yield "`weights` needs `union`"
        return
    if len(set(choice.union)) != len(choice.union):
        yield "`union` names a board twice; give it a weight instead"
    if choice.weights is not None and len(choice.weights) != len(choice.union):
        yield f"`weights` has {len(choice.weights)} numbers for {len(choice.union)} boards in `union`"
    if choice.types is not DEFAULT_TYPES or choice.category:
        yield "`union` with `types` or `category`: a union counts what its boards count"
    if choice.operator != "incr" or choice.votes is not None:
        yield "`union` with `votes` or an operator other than incr: a union only adds"


def _window_conflicts(choice: Board, window: Window | None) -> Iterator[str]:
    """Find choices that contradict the window. `window` is None if the window itself is wrong."""
    if choice.like_button and window is not None:  # a like of a visitor must count exactly once
        if choice.operator != "incr" or choice.union or choice.clock == "event":
            yield "`like_button` with `union`, `clock = event` or an operator other than incr: a like adds 1 now"
        elif choice.votes is not None:
            if choice.votes.per_key != 1:
                yield "`like_button` with `votes` needs `per_key = 1`: a visitor has one vote for each member"
        elif not isinstance(window, Rolling | Sliding):
            yield "`like_button` with this window needs `votes = { per_key = 1 }`, to count a like of a visitor once"
        elif window.length + getattr(window, "slot", 0) > MOST_REMEMBERED:
            yield "`like_button` with a window and slot of more than 8d in all: likes are remembered for 8d at most"
    chosen = choice.window_choice
    has_periods = isinstance(chosen, WindowChoice) and chosen.calendar is not None and chosen.last is None
    if choice.journal_periods is not None and not has_periods:
        yield "`journal_periods` with a window without periods: leave it out"
    within = {"day": ("hour", "day"), "week": ("hour", "day", "week")}.get(choice.baseline, ())
    if isinstance(window, Periods) and window.tables and window.unit in within:
        yield f"`baseline = {choice.baseline}` with a window of one {window.unit}: it begins empty; leave it out"
    leaves = isinstance(chosen, WindowChoice) and (chosen.rolling or chosen.sliding or chosen.last) is not None
    if leaves and choice.operator != "incr":
        yield (
            f"`operator = {choice.operator}` with a window that events leave: they are subtracted, which works only "
            'for sums; use a calendar window without `last`, or "forever"'
        )
    if leaves and choice.votes is not None:
        yield '`votes` with a window that events leave: votes don\'t expire; use a calendar window, or "forever"'


def text_mistakes(board: Board) -> Iterator[str]:
    """Find texts of a board that people can't read."""
    for name, texts in (
        ("title", {board.title}),
        ("types", board.source),
        ("category", board.categories),
        ("unit", {board.unit} - {""}),
    ):
        for text in sorted(texts):
            if fault := text_fault(text):
                yield f"`{name}` {fault}"


def read_table(table: Mapping[str, Any], kind: type[C]) -> C:
    """Read a table of choices from a file or a request. An error is about the first invalid choice."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        if str(error).endswith(_AT_WINDOW) and isinstance(text := table.get("window"), str):
            raise ValueError(f"`window`: {window_advice(text)}") from None
        raise ValueError(choice_mistake(error, table, kind)) from None


def part_mistakes(
    board: Board, parts: Collection[str], boards: Mapping[str, Board], invalid: Collection[str] = ()
) -> Iterator[str]:
    """Find mistakes between a union and some of its parts. `invalid` has the ids of boards with other mistakes."""
    for part in board.union:
        if part not in parts or part in invalid:
            continue
        fed = boards.get(part)
        if fed is None:
            known = {*boards, *invalid} - {"", board.id}
            yield f"board {board.id!r}: its union: {unknown('board', part, known)}"
        elif fed.union:
            yield f"board {board.id!r}: its union names {part!r}, which is a union itself; name its boards instead"
        elif fed.operator != "incr" or fed.votes is not None:
            yield f"board {board.id!r}: its union names {part!r}, whose scores are not plain sums"
        elif (fed.window, fed.clock) != (board.window, board.clock):
            yield f"board {board.id!r}: its union names {part!r}, which has another window or clock"
        elif fed.score != board.score:
            yield f"board {board.id!r}: its union names {part!r}, whose `score` has other fields or ranges"
        elif fed.idle_ttl is not None:
            yield f"board {board.id!r}: its union names {part!r}, which may be deleted after its `idle_ttl`"
        for fault in () if fed is None else (exposure(board, fed), forgetting(board, fed)):
            if fault:
                yield f"board {board.id!r}: {fault}"


def exposure(union: Board, part: Board) -> str | None:
    """Say why a union must not add up a part: fewer people may read the part.

    Return None if the union may add it up. The answer does not depend on the default visibility of the server, because
    that can change.
    """
    if part.visibility == "public" or union.visibility in {"private", part.visibility}:
        return None
    hidden = "is private" if part.visibility == "private" else "leaves out `visibility`, so LIVE_VISIBILITY can hide it"
    wanted = 'set `visibility = "private"` for the union'
    advice = wanted if part.visibility == "private" else f"leave it out for the union too, or {wanted}"
    return f"its union names {part.id!r}, which {hidden}, and a union shows what its parts hold; {advice}"


def forgetting(union: Board, part: Board) -> str | None:
    """Say why a union must not add up a part: the part still knows an event that the union would count again.

    Return None if the union may add it up.
    """
    if part.dedupe_seconds <= union.dedupe_seconds:
        return None
    remembers = f"which remembers ids for {part.dedupe_window}"
    return f"its union names {part.id!r}, {remembers}; let the union remember them as long"


def read_limits(tables: object) -> tuple[list[PrefixLimits], list[str]]:
    """Read the tables `[limits."acme-*"]` of a boards file. Return the valid limits, and all mistakes."""
    if not isinstance(tables, dict):
        return [], [f'limits: expected tables, got {tables!r}; write [limits."acme-*"]']
    found: list[PrefixLimits] = []
    mistakes = []
    for pattern, table in tables.items():
        name = f'[limits."{pattern}"]'
        if not PREFIX.fullmatch(pattern):
            mistakes.append(f"{name}: {pattern!r} is not the beginning of board ids with `*` after it, such as acme-*")
        elif not isinstance(table, dict):
            mistakes.append(f"{name}: expected a table, got {table!r}")
        else:
            try:
                choice = read_table(table, LimitsChoice)
            except ValueError as error:
                mistakes.append(f"{name}: {error}")
            else:
                found.append(PrefixLimits(prefix=pattern[:-1], **{name: getattr(choice, name) for name in table}))
    in_order = sorted(found, key=lambda limits: limits.prefix)
    mistakes += [
        f'[limits."{second.pattern}"]: its boards have the limits of "{first.pattern}" already; a board has one prefix'
        for first, second in pairwise(in_order)
        if second.prefix.startswith(first.prefix)
    ]
    return found, mistakes


def _limit_mistakes(limits: PrefixLimits, boards: Collection[Board]) -> Iterator[str]:
    """Find limits that the boards of the file already exceed."""
    own = [board for board in boards if board.id.startswith(limits.prefix)]
    if limits.boards is not None and len(own) > limits.boards:
        yield f"{limits.name('boards')} is {limits.boards}, and the file has {len(own)} of these boards"
    members = sum(board.max_members for board in own)
    if own and limits.members is not None and members > limits.members:
        yield (
            f"{limits.name('members')} is {limits.members}, and the `max_members` of its boards in the file add up to "
            f"{members}; a board without `max_members` has {DEFAULT_MAX_MEMBERS}"
        )


def parse_boards(text: str) -> Boards:
    """Parse the text of a boards file."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also raised for numbers of thousands of digits and deep nesting
        raise SetupError(f"not TOML: {error}") from None
    has_limits = "limits" in document
    limits, mistakes = read_limits(document.pop("limits", {}))
    tables: Any = document.pop("board", [])
    if not isinstance(tables, list) or not (tables or has_limits):
        raise SetupError('it contains no [[board]]; the smallest file is:\n[[board]]\nid = "posts"')
    mistakes += [f"{name}: unknown name; boards are [[board]] tables" for name in document]
    boards: dict[str, Board] = {}
    invalid: set[str] = set()
    for number, table in enumerate(tables, 1):
        if not isinstance(table, dict):
            mistakes.append(f"board {number}: expected a table, got {table!r}; write [[board]]")
            continue
        board_id = str(table.get("id", ""))
        name = f"board {number}" + (f" ({table['id']!r})" if "id" in table else "")
        is_known = board_id in boards or board_id in invalid
        try:
            board = make_board(read_table(table, Choices))
            found = list(text_mistakes(board))
        except ValueError as error:
            found = str(error).split("\n")
            invalid.add(board_id)
        else:
            boards.setdefault(board_id, board)
        mistakes += [f"{name}: {mistake}" for mistake in found]
        if is_known:
            mistakes.append(f"{name}: another board has this id")
    for board in boards.values():
        mistakes += part_mistakes(board, board.union, boards, invalid)
    mistakes += [mistake for each in limits for mistake in _limit_mistakes(each, boards.values())]
    if mistakes:
        raise SetupError("\n".join(mistakes))
    return Boards(boards.values(), limits=limits)


def load_boards(path: Path | None) -> Boards:
    """Read a boards file, or return the default board."""
    if path is None:
        return Boards([DEFAULT_BOARD])
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"can't read the boards file {path}: {error}") from None
    try:
        return parse_boards(text)
    except SetupError as error:
        raise SetupError(f"the boards file {path} has mistakes:\n{error}") from None
