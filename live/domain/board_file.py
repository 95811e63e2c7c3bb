"""The TOML file that defines boards.

An error reports the first invalid choice of each board, or else all its choices that contradict each other.
"""

import math
import tomllib
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from live.domain.board import (
    BOARD_ID,
    DEFAULT_BOARD,
    DEFAULT_MAX_AMOUNT,
    DEFAULT_MAX_MEMBERS,
    DEFAULT_RETENTION,
    DEFAULT_VOTES_GRACE,
    MOST_REMEMBERED,
    BaselineAge,
    Board,
    Boards,
    ClockKind,
    Journaling,
    JournalLevel,
    Operator,
    SortOrder,
    Ties,
    Visibility,
    Votes,
    parse_retention,
    parts_of_sums,
)
from live.domain.event import MAX_SCORE, datetime_of, milliseconds
from live.domain.limits import PREFIX, LimitsChoice, PrefixLimits
from live.domain.packing import Field, Packing, SumPacking
from live.domain.ranking import Ranks
from live.domain.score_format import NumberFormat, ScoreFormat
from live.domain.text import ID_FORM, PATTERN, text_fault, unknown
from live.domain.validation_messages import choice_mistake
from live.domain.window import (
    Duration,
    Periods,
    Rolling,
    Sliding,
    Window,
    WindowChoice,
    format_duration,
    make_window,
    parse_duration,
    window_advice,
)
from live.errors import SetupError

_READABLE: Final = {"pattern": PATTERN}  # for the contracts only: `text_mistakes` checks the texts
EventType = Annotated[str, Meta(min_length=1, max_length=64, extra_json_schema=_READABLE)]
Category = Annotated[str, Meta(min_length=1, max_length=256, extra_json_schema=_READABLE)]
C = TypeVar("C", bound=msgspec.Struct)
DEFAULT_TYPE: Final = "like"
_AT_WINDOW: Final = " - at `$.window`"  # of msgspec
_MOST_CAP: Final = 100_000
_MOST_MEMBERS: Final = 1_000_000_000
_MOST_VOTES_GRACE: Final = 86_400  # maximum seconds of `votes.grace`
_MOST_CONFLATION: Final = 60_000  # maximum milliseconds of `conflation_interval`
_MOST_UNIT: Final = 16  # maximum characters of `unit`
_MOST_SCALE: Final = 9  # maximum of `scale`, the number of decimals


class Choice(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True, kw_only=True):
    """A table of choices."""


class VotesChoice(Choice, frozen=True, kw_only=True):
    """The rules of a contest. Each rule is optional."""

    per_key: Annotated[int, Meta(ge=1)] | None = None
    per_actor: Annotated[int, Meta(ge=1)] | None = None
    opens: Annotated[datetime, Meta(tz=True)] | None = None
    closes: Annotated[datetime, Meta(tz=True)] | None = None
    registered: bool = False
    changes: bool = True
    tickets: bool = False
    grace: Duration | None = None

    @classmethod
    def of(cls, votes: Votes) -> "VotesChoice":
        """Return the table that defines these rules."""
        return cls(
            per_key=votes.per_key,
            per_actor=votes.per_actor,
            opens=None if votes.opens is None else datetime_of(votes.opens),
            closes=None if votes.closes is None else datetime_of(votes.closes),
            registered=votes.registered,
            changes=votes.changes,
            tickets=votes.tickets,
            grace=None if votes.grace == DEFAULT_VOTES_GRACE else format_duration(votes.grace),
        )


class FieldChoice(Choice, frozen=True, kw_only=True):
    """One field of a score that is made of several fields."""

    field: str
    order: SortOrder = "desc"
    min: int = 0
    max: int

    @classmethod
    def of(cls, part: Field) -> "FieldChoice":
        """Return the table that defines this field."""
        return cls(field=part.name, order=part.sort_order, min=part.low, max=part.high)


class BoardChoice(Choice, frozen=True, kw_only=True):
    """The choices of a `[[board]]` table. Each choice except the id has a default."""

    id: Annotated[str, Meta(extra_json_schema={"pattern": f"^{BOARD_ID.pattern}$"})]
    title: Annotated[str, Meta(min_length=1, max_length=200, extra_json_schema=_READABLE)] = ""
    types: Annotated[tuple[EventType, ...], Meta(min_length=1)] | None = None
    category: Annotated[tuple[Category, ...], Meta(min_length=1)] = ()
    union: Annotated[tuple[str, ...], Meta(min_length=2)] = ()
    weights: tuple[Annotated[int, Meta(ge=-MAX_SCORE, le=MAX_SCORE)], ...] | None = None
    window: WindowChoice | Literal["forever"] = WindowChoice(rolling="24h", slot="1h")
    operator: Operator = "incr"
    sort_order: SortOrder = "desc"
    zeros: bool = False
    ties: Ties = "first"
    ranks: Ranks = "ordinal"
    score: Annotated[tuple[FieldChoice, ...], Meta(min_length=1)] = ()
    votes: VotesChoice | None = None
    cap: Annotated[int, Meta(ge=1, le=_MOST_CAP)] | None = None
    max_amount: Annotated[int, Meta(ge=1, le=MAX_SCORE)] | None = None
    max_members: Annotated[int, Meta(ge=1, le=_MOST_MEMBERS)] = DEFAULT_MAX_MEMBERS
    clock: ClockKind = "server"
    dedupe_window: Duration | None = None
    conflation_interval: Duration | None = None
    like_button: bool = False
    baseline: BaselineAge = "hour"
    journal: JournalLevel = "events"
    journal_events: Duration | None = None
    journal_periods: Duration | None = None
    visibility: Visibility | None = None
    unit: Annotated[str, Meta(max_length=_MOST_UNIT, extra_json_schema=_READABLE)] = ""
    scale: Annotated[int, Meta(ge=0, le=_MOST_SCALE)] = 0
    format: NumberFormat = "number"

    @property
    def score_format(self) -> ScoreFormat | None:
        """How people read scores, or None for whole numbers."""
        chosen = ScoreFormat(self.unit, self.scale, self.format)
        return None if chosen == ScoreFormat() else chosen


def make_board(choice: BoardChoice) -> Board:
    """Build a board from its choices. Check the rules that the types of the choices can't express.

    Raises:
        ValueError: choices are invalid or contradict each other. The message has one line for each mistake.
    """
    window, score, conflation = _check(choice)
    votes, most = choice.votes, choice.max_amount
    return Board(
        id=choice.id,
        title=choice.title or choice.id,
        source=frozenset(() if choice.union else choice.types or (DEFAULT_TYPE,)),
        categories=frozenset(choice.category),
        union=dict(zip(choice.union, choice.weights or (1,) * len(choice.union), strict=True)),
        window=window,
        operator=choice.operator,
        sort_order=choice.sort_order,
        zeros=choice.zeros,
        ties=choice.ties,
        ranks=choice.ranks,
        score=score,
        votes=None
        if votes is None
        else Votes(
            per_key=votes.per_key,
            per_actor=votes.per_actor,
            opens=None if votes.opens is None else milliseconds(votes.opens),
            closes=None if votes.closes is None else milliseconds(votes.closes),
            registered=votes.registered,
            changes=votes.changes,
            tickets=votes.tickets,
            grace=DEFAULT_VOTES_GRACE if votes.grace is None else round(parse_duration(votes.grace) * 1000),
        ),
        cap=choice.cap,
        max_amount=default_max_amount(choice.weights or ()) if most is None else most,
        max_members=choice.max_members,
        clock=choice.clock,
        dedupe_window=0 if choice.dedupe_window is None else math.ceil(parse_duration(choice.dedupe_window)),
        conflation=conflation,
        like_button=choice.like_button,
        baseline=choice.baseline,
        journal=Journaling(
            level=choice.journal,
            events=None if choice.journal_events is None else parse_retention(choice.journal_events),
            periods=None if choice.journal_periods is None else parse_retention(choice.journal_periods),
        ),
        visibility=choice.visibility,
        score_format=choice.score_format,
    )


def default_max_amount(weights: Collection[int]) -> int:
    """Return the default of `max_amount`. For a union, it takes the weights of the parts into account."""
    return min(MAX_SCORE, DEFAULT_MAX_AMOUNT * max(1, *map(abs, weights), 1))


def _check(choice: BoardChoice) -> tuple[Window, Packing | None, int | None]:
    """Return the window, the packing, and the conflation interval in milliseconds.

    Raises:
        ValueError: choices are invalid or contradict each other. The message has one line for each mistake.
    """
    mistakes = list(_conflicts(choice))
    window: Window | None = None
    score: Packing | None = None
    if not BOARD_ID.fullmatch(choice.id):
        mistakes.insert(0, f"id = {choice.id!r} is not an id: {ID_FORM}")
    try:
        window = make_window(choice.window)
    except ValueError as error:
        mistakes += str(error).split("\n")
    mistakes += _window_conflicts(choice, window)
    conflation = None
    if choice.conflation_interval is not None:
        try:
            conflation = round(parse_duration(choice.conflation_interval) * 1000)
            if not 1 <= conflation <= _MOST_CONFLATION:
                most = f"{_MOST_CONFLATION // 1000}s"
                mistakes.append(f"conflation_interval: {choice.conflation_interval!r} is not between 1ms and {most}")
        except ValueError as error:
            mistakes.append(f"conflation_interval: {error}")
    fields = []
    for part in choice.score:
        try:
            fields.append(Field(part.field, part.order, part.min, part.max))
        except ValueError as error:
            mistakes += [f"score: {line}" for line in str(error).split("\n")]
    if choice.score and len(fields) == len(choice.score):
        try:
            if choice.operator != "incr":
                score = Packing(tuple(fields))
            elif window is not None:
                score = SumPacking(tuple(fields), parts_of_sums(window, choice.clock))
        except ValueError as error:
            mistakes += [f"score: {line}" for line in str(error).split("\n")]
    if mistakes or window is None:
        raise ValueError("\n".join(mistakes))
    return window, score, conflation


def _conflicts(choice: BoardChoice) -> Iterator[str]:
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
    yield from _journal_mistakes(choice)
    yield from _union_mistakes(choice)
    if choice.score:
        yield from _fields_conflicts(choice)


def _journal_mistakes(choice: BoardChoice) -> Iterator[str]:
    kept = DEFAULT_RETENTION
    for name in ("journal_events", "journal_periods"):
        text = getattr(choice, name)
        if text is None:
            continue
        if choice.journal == "off":
            yield f"`{name}` with `journal = off`: the journal keeps nothing; leave it out"
        try:
            seconds = parse_retention(text)
        except ValueError as error:
            yield f"{name}: {error}"
        else:
            kept = seconds if name == "journal_events" else kept
    if choice.dedupe_window is None:
        return
    if choice.journal == "off":
        yield "`dedupe_window` with `journal = off`: only the journal keeps ids for so long; leave it out"
    try:
        if parse_duration(choice.dedupe_window) > kept and choice.journal != "off":
            yield (
                f"`dedupe_window` of {choice.dedupe_window} is longer than the journal keeps events, "
                f"{format_duration(kept * 1000)}; make `journal_events` as long"
            )
    except ValueError as error:
        yield f"dedupe_window: {error}"


def _fields_conflicts(choice: BoardChoice) -> Iterator[str]:
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


def _vote_mistakes(votes: VotesChoice) -> Iterator[str]:
    if votes.opens is not None and votes.closes is not None and votes.opens >= votes.closes:
        yield "`votes` closes before it opens"
    if votes.tickets and votes.per_key != 1:
        yield "`votes` with `tickets` needs `per_key = 1`: a ticket has one vote for each member"
    try:
        if votes.grace is not None and parse_duration(votes.grace) > _MOST_VOTES_GRACE:
            yield f"votes.grace: {votes.grace!r} is more than {_MOST_VOTES_GRACE // 3600}h"
    except ValueError as error:
        yield f"votes.grace: {error}"


def _union_mistakes(choice: BoardChoice) -> Iterator[str]:
    if not choice.union:
        if choice.weights is not None:
            yield "`weights` needs `union`"
        return
    if len(set(choice.union)) != len(choice.union):
        yield "`union` names a board twice; give it a weight instead"
    if choice.weights is not None and len(choice.weights) != len(choice.union):
        yield f"`weights` has {len(choice.weights)} numbers for {len(choice.union)} boards in `union`"
    if choice.types is not None or choice.category:
        yield "`union` with `types` or `category`: a union counts what its boards count"
    if choice.operator != "incr" or choice.votes is not None:
        yield "`union` with `votes` or an operator other than incr: a union only adds"


def _window_conflicts(choice: BoardChoice, window: Window | None) -> Iterator[str]:
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
    chosen = choice.window
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
        ("unit", {board.score_format.unit} - {""} if board.score_format else set[str]()),
    ):
        for text in sorted(texts):
            if fault := text_fault(text):
                yield f"`{name}` {fault}"


def read_table(table: Mapping[str, Any], kind: type[C]) -> C:
    """Read a table of choices from a file or a request.

    Raises:
        ValueError: a choice is invalid. The message is about the first such choice.
    """
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
    if part.dedupe_window <= union.dedupe_window:
        return None
    window = format_duration(part.dedupe_window * 1000)
    return f"its union names {part.id!r}, which remembers ids for {window}; let the union remember them as long"


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
    """Parse the text of a boards file.

    Raises:
        SetupError: the file has mistakes. The message has one line for each mistake.
    """
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
            board = make_board(read_table(table, BoardChoice))
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
    """Read a boards file, or return the default board.

    Raises:
        SetupError: the file can't be read, or has mistakes.
    """
    if path is None:
        return Boards([msgspec.structs.replace(DEFAULT_BOARD, visibility=None)])  # LIVE_VISIBILITY says who may read it
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"can't read the boards file {path}: {error}") from None
    try:
        return parse_boards(text)
    except SetupError as error:
        raise SetupError(f"the boards file {path} has mistakes:\n{error}") from None
