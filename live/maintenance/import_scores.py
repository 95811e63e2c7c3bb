"""Import scores from elsewhere: set them by corrections, so that a second import changes nothing."""

import asyncio
import codecs
import csv
import io
import math
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import BinaryIO, Final, cast

import msgspec

from live.boards.definitions import all_boards
from live.domain.board import Board
from live.domain.csv_table import Header, cells_of, encoding_of, plain_cell, read_header, shown_header
from live.domain.event import MAX_SCORE, member_fault
from live.domain.item import Item, item_faults
from live.domain.text import text_fault, unknown
from live.errors import REFUSALS, EpochLostError, NotFoundError, ProblemError, SetupError, StoreUnavailableError
from live.http.parameters import time_of
from live.maintenance.unions import find_unions
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.board.state import BoardState
from live.store.board.write.correction import ChangedError, Corrected, Correction, changes_of_union, correct
from live.store.board.write.writer import BoardWriter
from live.store.connection.client import Store
from live.store.connection.external_redis import read_sorted_set
from live.store.connection.loss import require_no_loss
from live.store.registry.audit_trail import command_acting
from live.store.registry.items import Items

MOST_LINE: Final = 16 * 1024  # bytes
MOST_NAMED: Final = 100  # maximum number of refused lines that a result lists
_PIECE: Final = 1000  # lines in one batch
_MOST_READ: Final = 20_000  # maximum values, one per member and slot, that the script compares in one call
_MOST_REASON: Final = 500  # characters
_PAUSE: Final = 0.2
_PATIENCE: Final = 60.0  # seconds for which the store may be away, or the journal behind
_SUSPICIOUS: Final = 10**12
_MOST_SHOWN: Final = 40  # bytes of a member that a message shows
_MOST_COLUMNS: Final = 100  # characters of the names of columns that a message shows
_KNOWN: Final = frozenset({"member", "score", "time", "title", "rank", "metadata", "written"})
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,16}(\.0*)?")


class ScoreLine(msgspec.Struct, frozen=True):
    """The score of a member in a line, at a time (ms since 1970) or now. An empty title means no title."""

    number: int
    member: str
    score: int
    time: int | None = None
    title: str = ""


class RefusedLine(msgspec.Struct, frozen=True):
    """A line, or an element of a sorted set in the order of reading, that is not imported, and the reason."""

    line: int
    member: str
    reason: str


class SourcePart(msgspec.Struct, frozen=True):
    """Some lines of the source, the size that was read so far, and the whole size, which is 0 if it is not known.

    `reordered` counts the lines that the board ranks before their predecessor, although their scores are equal.
    """

    lines: list[ScoreLine | RefusedLine]
    done: int
    total: int
    reordered: int = 0


class Imported(msgspec.Struct):
    """The result: the number of scores and titles that changed, of lines that changed nothing, and of refused lines.

    `absent` counts the lines with a score of zero whose member is not on the board, if a sum of zero is no score.
    `reordered` counts the members that were in another order among equal scores at the source. `refusals` names the
    first refused lines.
    """

    changed: int = 0
    titles: int = 0
    unchanged: int = 0
    absent: int = 0
    reordered: int = 0
    refused: int = 0
    refusals: list[RefusedLine] = []

    def refuse(self, line: RefusedLine) -> None:
        """Note a refused line."""
        self.refused += 1
        if len(self.refusals) < MOST_NAMED:
            self.refusals.append(line)


async def csv_parts(file: BinaryIO, board: Board) -> AsyncIterator[SourcePart]:
    """Read a table whose first line names `member`, `score` or the fields of a score, and maybe `time` and `title`."""
    total = os.fstat(file.fileno()).st_size if file.seekable() else 0
    lines = _lines(file)
    _, first = next(lines, (1, None))
    try:
        header = read_header(first or "")
    except csv.Error:
        header = Header(first or "", [], "")
    columns = header.columns
    if twice := [name for name in ("member", "score", "time", "title") if columns.count(name) > 1]:
        raise SetupError(f"the first line names the column {twice[0]!r} twice")
    if "member" not in columns or not ("score" in columns or set(columns) - _KNOWN):
        wanted = "it must name the columns member,score and, if you have them, time,title, with , ; or a tab in between"
        raise SetupError(f"{shown_header(header)}; {wanted}")
    done, part = len(header.text), []
    for number, text in lines:
        done += MOST_LINE if text is None else len(text.encode())
        part.append(_line(board, number, text, header))
        if len(part) == _PIECE:
            yield SourcePart(part, min(done, total), total)
            part = []
    yield SourcePart(part, total, total)


def _lines(file: BinaryIO) -> Iterator[tuple[int, str | None]]:
    """Yield each line that is not blank, with its number. The text is None if it is too long or not text."""
    number = 0
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", file))
    if encoding_of(buffered.peek(2)) == "utf-16":
        file = cast("BinaryIO", codecs.EncodedFile(buffered, "utf-8", "utf-16"))
    while line := file.readline(MOST_LINE + 1):
        number += 1
        is_whole = len(line) <= MOST_LINE
        while len(line) > MOST_LINE and not line.endswith(b"\n"):
            line = file.readline(MOST_LINE + 1)
        try:
            text = line.decode() if is_whole else None
        except UnicodeDecodeError:
            text = None
        if text is None or text.strip():
            yield number, text


def _line(board: Board, number: int, text: str | None, header: Header) -> ScoreLine | RefusedLine:
    if text is None:
        return RefusedLine(number, "", f"it is not UTF-8, or longer than {MOST_LINE:,} bytes")
    try:
        cells = cells_of(text, header.separator)
    except csv.Error as error:
        return RefusedLine(number, "", f"it is not CSV: {error}")
    if len(cells) > len(header.columns):
        return RefusedLine(number, "", f"it has {len(cells)} cells, and the first line names {len(header.columns)}")
    return _wanted(board, number, dict(zip(header.columns, map(plain_cell, cells), strict=False)))


def _wanted(board: Board, number: int, cells: Mapping[str, str]) -> ScoreLine | RefusedLine:
    member, title, time = cells.get("member", ""), cells.get("title", ""), cells.get("time", "").strip()
    fault, at = member_fault(member), None
    if not fault and title:
        fault = next(item_faults(Item(member, title), ()), None)
    if not fault and time:
        try:
            at = time_of(time)
        except ValueError:
            fault = f"the time {time[:40]!r} is not a time such as 2026-11-22T12:00:00Z"
    score = fault or _score_of(board, cells)
    if isinstance(score, str):
        return RefusedLine(number, "" if member_fault(member) else member, score)
    return ScoreLine(number, member, score, at, title)


def _whole(text: str) -> int | None:
    """Parse a whole number within ±2^53, such as 12 or 12.0. Return None for any other text."""
    number = int(text.partition(".")[0]) if _WHOLE.fullmatch(text) else None
    return None if number is None or abs(number) > MAX_SCORE else number


def _score_of(board: Board, cells: Mapping[str, str]) -> int | str:
    """Return the score of a line, or why it has none. Columns of fields take precedence over a column `score`."""
    packing, text = board.packing, cells.get("score", "").strip()
    fields = [] if packing is None else [field.name for field in packing.fields]
    score = _whole(text)
    if "score" in cells and score is None:
        return f"the score {text[:40]!r} is not a whole number within ±2^53"
    if packing is None or cells.keys().isdisjoint(fields):
        if score is None:
            found = repr(", ".join(cells))[:_MOST_COLUMNS]
            raise SetupError(f"the first line names {found}; it must name the column {' or '.join(['score', *fields])}")
        return score
    values = {}
    for name in fields:
        if not (text := cells.get(name, "").strip()):
            continue
        if (value := _whole(text)) is None:
            return f"{name} {text[:40]!r} is not a whole number within ±2^53"
        values[name] = value
    try:
        return packing.pack(values)
    except ValueError as error:
        return str(error)


class SortedSet(msgspec.Struct, frozen=True):
    """A sorted set of another server, and how its scores become scores of a board.

    A score is divided by `divide`, for sets whose scores hold a time in their last digits. `rounding` is `down` or
    `up`; without it, a score with a remainder is refused.
    """

    url: str
    key: str
    divide: int | None = None
    rounding: str | None = None

    async def parts(self, board: Board) -> AsyncIterator[SourcePart]:
        """Read the set, then yield its members in an order in which those with equal scores keep their ranks in Redis.

        An element that is read twice counts once.
        """
        found, count = dict[bytes, bytes](), 0
        async for count, some in read_sorted_set(self.url, self.key):
            found.update(some)
            yield SourcePart([], min(len(found), count), 2 * count)
        if self.divide is None and found and min(abs(float(score)) for score in found.values()) > _SUSPICIOUS:
            name, score = next(iter(found.items()))
            raise SetupError(
                f"all scores of {self.key!r} are above 10^12, such as {score.decode()} of {shown_bytes(name)}: do they "
                "hold a time in their last digits? If so, add for example --divide 10000000000 --round down. If not, "
                "add --divide 1"
            )
        # Redis shows the highest score first, and equal scores in the reverse order of their names. A board where the
        # last of equal scores is ahead needs the other order.
        backward = (board.sort_order == "desc") == (board.ties != "last")
        ordered = sorted(found.items(), key=lambda one: (float(one[1]), one[0]), reverse=backward)
        before = None
        for at in range(0, len(ordered), _PIECE):
            lines = [self._line(board, at + i, *one) for i, one in enumerate(ordered[at : at + _PIECE], 1)]
            reordered = 0
            for line in lines if board.ties == "key" else ():
                if isinstance(line, ScoreLine):
                    if before is not None and before.score == line.score and before.member > line.member:
                        reordered += 1
                    before = line
            yield SourcePart(lines, count + min(at + len(lines), count), 2 * count, reordered)

    def _line(self, board: Board, number: int, name: bytes, score: bytes) -> ScoreLine | RefusedLine:
        try:
            member = name.decode()
        except UnicodeDecodeError:
            return RefusedLine(number, "", f"the member {shown_bytes(name)} is not UTF-8")
        text = score.decode()
        if math.isfinite(float(text)):
            whole, rest = divmod(Fraction(text), self.divide or 1)
            if rest and self.rounding is None:
                why = f"the score {text} leaves a remainder; add --round down or --round up"
                return RefusedLine(number, "" if member_fault(member) else member, why)
            text = str(whole + (1 if rest and self.rounding == "up" else 0))
        return _wanted(board, number, {"member": member, "score": text})


def shown_bytes(name: bytes) -> str:
    """Return the beginning of a member of a sorted set, as messages show it."""
    return repr(name[:_MOST_SHOWN].decode("utf-8", "backslashreplace"))


class Importing:
    """Sets the scores of a board, and the titles of its members, to the values of a source. Servers may run.

    `source` names the source in the audit log, and in the reason of each change in the journal.
    """

    def __init__(self, client: Store, settings: Settings, board: str, source: str) -> None:
        self._client = client
        self._settings = settings
        self._board = board
        self._source = source
        reason = f"import of {source}"
        self._reason = reason[:_MOST_REASON] if text_fault(reason) is None else "import"
        self._named: dict[tuple[str, int | None], int] = {}  # the number of the line, by member and start of a period
        self._items = Items(client, settings.max_items)

    async def run(
        self, parts: Callable[[Board], AsyncIterator[SourcePart]], show: Callable[[int, int, int], None]
    ) -> Imported:
        """Import the parts of a source one after another. `parts` gets the board.

        `show` receives the size that was read, the whole size, and the number of lines. If the store may have run the
        last batch when it goes away, that batch may be missing in the unions.
        """
        await require_no_loss(self._client, self._board)
        writer, unions = await self._open()
        await writer.state.open_to_write()
        imported, count = Imported(), 0
        async with command_acting(self._client, "imported", {"source": self._source}, board=self._board) as entry:
            async for part in parts(writer.state.board):
                wanted = []
                for line in part.lines:
                    if not isinstance(line, RefusedLine):
                        line = self._only(writer.state, line)  # noqa: PLW2901 - the line, or why it is refused
                    if isinstance(line, RefusedLine):
                        imported.refuse(line)
                    else:
                        wanted.append(line)
                slots = await self._client.call(writer.state.keys.slots, "ZCARD", writer.state.keys.slots)
                for batch in _batches(wanted, min(_PIECE, max(1, _MOST_READ // max(slots, 1)))):
                    await self._set(writer, unions, batch, imported)
                count += len(part.lines)
                imported.reordered += part.reordered
                show(part.done, part.total, count)
            entry["after"] = {"scores": imported.changed, "titles": imported.titles}
        return imported

    def _only(self, state: BoardState, line: ScoreLine) -> ScoreLine | RefusedLine:
        """Refuse a line that sets a score again, because a second import would then change it back and forth."""
        window, start = state.board.window, None
        if window.tables:
            start = window.slot_at((state.clock.now if line.time is None else line.time) // 1000).start
        first = self._named.setdefault((line.member, start), line.number)
        return line if first == line.number else RefusedLine(line.number, line.member, f"line {first} names it too")

    async def _open(self) -> tuple[BoardWriter, list[tuple[BoardWriter, int]]]:
        """Return the writer of the board, and the writers of its unions with their weights."""
        # If the reply to a batch is lost, the writer sends the batch again under the same number, so it counts once,
        # also in unions. With this deadline, the writer tries for a minute instead of seconds.
        settings = msgspec.structs.replace(self._settings, write_deadline=_PATIENCE)
        found = await all_boards(self._client)
        if self._board not in found:
            raise NotFoundError(unknown("board", self._board, found))
        board, epoch = found[self._board]
        if board.union:
            raise SetupError(f"the board is a union; import into the boards that it adds up: {', '.join(board.union)}")
        unions = (await find_unions(self._client, settings)).values()
        parts = ((union, part, weight) for union in unions for part, weight in union.parts)
        fed = [(union.ledger.writer, weight) for union, part, weight in parts if part.board.id == board.id]
        return Ledger(self._client, board, settings, born=epoch).writer, fed

    async def _set(
        self, writer: BoardWriter, unions: list[tuple[BoardWriter, int]], batch: list[ScoreLine], imported: Imported
    ) -> None:
        corrections = [
            Correction(member=one.member, reason=self._reason, score=one.score, time=one.time) for one in batch
        ]
        outcomes = list[Corrected | str]()
        async for some, found in _patiently(writer, corrections):
            if "frozen" in found:
                raise SetupError("the board is frozen. Thaw it first")
            outcomes += await _move_unions(writer, unions, some, found)
        zero_is_none = writer.state.board.operator == "incr" and not writer.state.board.zeros
        titled: dict[str, str] = {}
        for one, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, str):
                imported.refuse(RefusedLine(one.number, one.member, REFUSALS.get(outcome, outcome)))
                continue
            if zero_is_none and outcome.before is None and not outcome.score:
                imported.absent += 1
            elif outcome.score == (outcome.before or 0 if zero_is_none else outcome.before):
                imported.unchanged += 1
            else:
                imported.changed += 1
            if one.title:
                titled[one.member] = one.title
        known = await self._items.of(list(titled))
        items = [
            msgspec.structs.replace(known[member], title=title) if member in known else Item(member, title)
            for member, title in titled.items()
            if member not in known or known[member].title != title
        ]
        if items:
            try:
                await self._items.put(items)
            except ProblemError as error:
                raise SetupError(f"the titles can't be stored: {error.detail}") from None
            imported.titles += len(items)


async def _move_unions(
    writer: BoardWriter,
    unions: list[tuple[BoardWriter, int]],
    corrections: list[Correction],
    outcomes: list[Corrected | str],
) -> list[Corrected | str]:
    """Make the changes of a board on its unions too. Return the outcomes, or why a union refuses a change.

    If a union refuses a change, the board and the earlier unions take this change back, because the next import adds
    only what the board lacks.
    """
    moved, faults = [(writer, 1)], list[str]()

    async def add(to: BoardWriter, changes: list[Correction]) -> dict[str, str]:
        """Add changes as far as possible. Return the reasons of refusals by member."""
        left, refused = {one.member: one for one in changes}, dict[str, str]()
        try:
            async for some, found in _patiently(to, changes):
                for one, outcome in zip(some, found, strict=True):
                    del left[one.member]
                    if isinstance(outcome, str):
                        refused[one.member] = outcome
        except (StoreUnavailableError, EpochLostError) as error:
            names = ", ".join(f"{one.member} {one.add:+d}" for one in left.values())
            faults.append(
                f"{error}. So board {to.state.board.id} may lack changes that a second import does not add: {names}"
            )
        return refused

    zeros = writer.state.board.zeros
    for union, weight in unions:
        refused = await add(union, changes_of_union(corrections, outcomes, weight, zeros=zeros))
        if refused:
            for board, times in moved:
                changes = changes_of_union(corrections, outcomes, -times, zeros=False)
                kept = await add(board, [one for one in changes if one.member in refused])
                name = board.state.board.id
                faults += [f"board {name} keeps {member!r}: {REFUSALS[code]}" for member, code in kept.items()]
            reasons = {member: f"union {union.state.board.id}: {REFUSALS[code]}" for member, code in refused.items()}
            outcomes = [reasons.get(one.member, outcome) for one, outcome in zip(corrections, outcomes, strict=True)]
        if "frozen" in refused.values():
            faults.append(f"union {union.state.board.id} of the board is frozen. Thaw it first")
        moved.append((union, weight))
    if faults:
        raise SetupError("\n".join(faults))
    return outcomes


async def _patiently(
    writer: BoardWriter, corrections: list[Correction]
) -> AsyncIterator[tuple[list[Correction], list[Corrected | str]]]:
    """Correct scores. Yield the corrections of each call with their results.

    While the store is away or the journal is behind, wait and try again. While the members change all the time,
    correct fewer members in one call.
    """
    loop = asyncio.get_running_loop()
    give_up, at, size = loop.time() + _PATIENCE, 0, len(corrections)
    while at < len(corrections):
        some = corrections[at : at + size]
        try:
            found = await correct(writer, some)
        except ChangedError:
            if size == 1:
                raise
            size = max(1, size // 2)
        except StoreUnavailableError as error:
            if error.unknown or loop.time() > give_up:
                raise
            await asyncio.sleep(_PAUSE)
        else:
            yield some, found
            give_up, at = loop.time() + _PATIENCE, at + len(some)


def _batches(wanted: Sequence[ScoreLine], most: int) -> Iterator[list[ScoreLine]]:
    """Divide lines into batches of at most `most` lines. The members of a batch are distinct."""
    batch: dict[str, ScoreLine] = {}
    for one in wanted:
        if len(batch) == most or one.member in batch:
            yield list(batch.values())
            batch = {}
        batch[one.member] = one
    if batch:
        yield list(batch.values())
