"""`live export` writes rankings and changes of scores as tables, and `live import` sets the scores of a board."""

import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, cast

import msgspec
import typer

from live.cli.context import Context, command, milliseconds_of, out
from live.domain.board import Board
from live.domain.csv_table import csv_writer
from live.domain.event import rfc3339
from live.domain.text import counted, unknown, visible_lines
from live.domain.window import Periods
from live.errors import NotFoundError, SetupError
from live.journal.database import Database
from live.journal.log.definitions import latest_boards
from live.journal.log.timelines import all_timelines
from live.journal.past.queries import AsOf, NoPastError, PastRanking
from live.journal.state.ranking import newest_slot
from live.maintenance.draining import acknowledging
from live.maintenance.export import (
    EVENT_COLUMNS,
    Column,
    Row,
    event_parts,
    last_contents,
    ranking_columns,
    ranking_parts,
)
from live.maintenance.import_scores import Imported, Importing, SortedSet, csv_parts
from live.maintenance.recover import board_of
from live.store.board.read.reader import period_name
from live.system.files import replacing

Write = Callable[[Sequence[Row]], None]

_JSON: Final = msgspec.json.Encoder()

_END = 2**52  # milliseconds; later than the time of any event
AsOfOption = Annotated[
    str | None, typer.Option("--as-of", help="The time of the ranking, such as 2026-11-22T12:00:00Z. Default: now.")
]
PeriodOption = Annotated[
    str | None, typer.Option("--period", help="A period of a calendar board: `current`, `previous` or a name.")
]
EventsOption = Annotated[bool, typer.Option("--events", help="Export all changes of scores instead of a ranking.")]
FromOption = Annotated[str | None, typer.Option("--from", help="With --events: only events from this time on.")]
ToOption = Annotated[str | None, typer.Option("--to", help="With --events: only events before this time.")]
OutputOption = Annotated[str, typer.Option("--output", help="A file, or `-` for standard output.")]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--csv", metavar="FILE", help="A table whose first line is `member,score` or `member,score,time,title`; or -."
    ),
]
RedisKeyOption = Annotated[str | None, typer.Option("--redis-key", help="A sorted set of another Redis or Valkey.")]
RedisOption = Annotated[
    str,
    typer.Option("--redis", envvar="LIVE_IMPORT_REDIS", metavar="URL", help="Address of the server for --redis-key."),
]
DivideOption = Annotated[
    int | None,
    typer.Option(
        "--divide", min=1, max=10**18, help="With --redis-key: divide each score, if it ends in digits of a time."
    ),
]
RoundOption = Annotated[
    str | None, typer.Option("--round", help="With --redis-key: `down` or `up`, for scores that are not whole.")
]
FormatOption = Annotated[str, typer.Option("--format", help="One of csv, ndjson, parquet.")]


@command("data_dir")
def export(  # noqa: PLR0913 - one parameter per flag
    context: Context,
    name: Annotated[str, typer.Argument(metavar="BOARD", help="The id of the board.")],
    *,
    as_of: AsOfOption = None,
    period: PeriodOption = None,
    events: EventsOption = False,
    since: FromOption = None,
    until: ToOption = None,
    form: FormatOption = "csv",
    output: OutputOption = "-",
) -> None:
    """Write the ranking of a board, or all changes of its scores, as a table. The data comes from the journal.

    The file gets its name when it is complete. With --json, the command also prints what it has written.

    Example: live export posts --as-of 2026-11-22T12:00:00Z --format ndjson --output noon.ndjson
    """
    if form not in FORMATS:
        raise SetupError(f"--format {form!r} is not one of {', '.join(FORMATS)}")
    if events and (as_of or period):
        raise SetupError("--as-of and --period choose a ranking, and --events does not export one")
    if (since or until) and not events:
        raise SetupError("--from and --to choose events: add --events")
    if context.as_json and output == "-":
        raise SetupError("--json prints on standard output: name a file with --output")
    with context.journal(writes=False) as database:
        timelines = database.work(all_timelines)
        known = {timeline.board for timeline, _ in timelines}
        if name not in known:
            raise NotFoundError(f"in the journal, {unknown('board', name, known)}")
        # A running server adds the definition of a board before its timeline. So each timeline has its definition.
        made = database.work(latest_boards)
        board = board_of(name, made)
        found: PastRanking | None = None
        if events:
            columns = EVENT_COLUMNS
            parts = event_parts(database, board, _time("--from", since), _time("--to", until))
        else:
            columns = ranking_columns(board)
            found, parts = _ranking(database, board, as_of, period)
        count = 0
        with (
            context.progress("Exporting") as show,
            output_file(output) as file,
            FORMATS[form](file, columns) as write,
        ):
            for part in parts:
                write(part.rows)
                count += len(part.rows)
                show(part.done, part.total, count)
    written = {"board": name, "format": form, "output": output, "rows": count}
    if found is not None:
        written |= {"epoch": found.epoch, "offset": found.offset, "period": period_name(board, found.period)}
    if not context.report(written) and output != "-":
        out.print(f"{output} has {counted(count, 'row')}.", soft_wrap=True)


def _ranking(database: Database, board: Board, as_of: str | None, period: str | None) -> Any:  # noqa: ANN401
    data, now = database.work(last_contents, board.id), round(time.time() * 1000)
    newest, at = newest_slot(board, data, max(now, data.time // 1000)), _time("--as-of", as_of)
    current = newest if at is None else at // 1000
    if at is None:
        at = _END if board.clock == "event" else max(now, data.time // 1000 + 1)
    start = None if period in (None, "current") else _period(board, period or "", current)
    is_gone = False
    if as_of is None and start is not None and newest is not None:
        is_gone = start < board.window.oldest(newest)
    moment = AsOf(board, None, at, start, frozenset(data.hidden))  # who is hidden now stays hidden in the past
    try:
        return ranking_parts(database, moment, archived=is_gone)
    except NoPastError as error:
        raise error.of_board(board.id) from None


def _period(board: Board, name: str, current: int | None) -> int:
    """Return the start of a period. `current` is a time in the current period, in seconds since 1970."""
    window = board.window
    if not isinstance(window, Periods) or not window.tables:
        raise SetupError(f"--period: board {board.id!r} does not have a ranking for each period")
    try:
        if name != "previous":
            return window.calendar.parse(name).start
        if current is None:
            raise SetupError(f"--period: board {board.id!r} has no event yet")
        return window.calendar.before(window.calendar.at(current)).start
    except (ValueError, OverflowError) as error:
        raise SetupError(f"--period: {error}") from None


def _time(flag: str, text: str | None) -> int | None:
    return None if text is None else milliseconds_of(text, flag)


@command("store", "data_dir")
async def import_scores(
    context: Context,
    board: Annotated[str, typer.Argument(help="The id of the board.")],
    *,
    table: TableOption = None,
    redis_key: RedisKeyOption = None,
    redis: RedisOption = "redis://127.0.0.1:6379",
    divide: DivideOption = None,
    rounding: RoundOption = None,
) -> None:
    """Set the scores of a board to the scores in a table, or in a sorted set. Servers may run.

    Each change is a correction: viewers see it, and the journal says where it comes from. The same import a second time
    changes nothing, so after an interruption run it again. It exits with 1 if a line was refused.

    Example: live import posts --csv scores.csv
    """
    with ExitStack() as stack:
        if (table is None) == (redis_key is None):
            raise SetupError("give either --csv or --redis-key")
        if redis_key is None and (divide or rounding):
            raise SetupError("--divide and --round change the scores of a sorted set: add --redis-key")
        if rounding not in (None, "down", "up"):
            raise SetupError(f"--round {rounding!r} is not one of down, up")
        # Everybody who may read the board sees this text in its journal, so the text leaves out the folder of the
        # file.
        source = f"sorted set {redis_key}" if table is None else "standard input" if table == "-" else Path(table).name
        file: BinaryIO = sys.stdin.buffer
        if table not in (None, "-"):
            file = stack.enter_context(_open(table))
        read = SortedSet(redis, redis_key, divide, rounding).parts if redis_key else partial(csv_parts, file)
        show = stack.enter_context(context.progress("Importing"))
        async with context.store() as client, acknowledging(client, context.settings):
            found = await Importing(client, context.settings, board, source).run(read, show)
    if not context.report(found):
        _print_imported(found)
    if found.refused:
        raise typer.Exit(1)


def _open(path: str) -> BinaryIO:
    try:
        return open(path, "rb")  # noqa: PTH123 - the caller closes it
    except OSError as error:
        raise SetupError(f"can't read {path}: {error.strerror}") from None


def _print_imported(found: Imported) -> None:
    titles = f" and {counted(found.titles, 'title')}" if found.titles else ""
    unchanged = counted(found.unchanged, "score")
    out.print(f"{counted(found.changed, 'score')}{titles} changed. {unchanged} stayed the same.")
    if found.absent:
        out.print(f"{counted(found.absent, 'line')} with the score 0: their members are not on the board.")
    if found.reordered:
        members = counted(found.reordered, "member")
        out.print(f"{members} in another order than in Redis: the board orders equal scores by name.", soft_wrap=True)
    if found.refused:
        out.print(f"{counted(found.refused, 'line')} refused:")
    for one in found.refusals:
        out.print(f"  line {one.line}{f' ({one.member})' if one.member else ''}: {one.reason}", soft_wrap=True)
    if found.refused > len(found.refusals):
        out.print(f"  and {found.refused - len(found.refusals):,} more")


@contextmanager
def output_file(target: str) -> Iterator[BinaryIO]:
    """Open a file for writing. The file gets its name when it is complete. `-` is standard output."""
    if target == "-":
        try:
            yield cast("BinaryIO", _Terminal()) if sys.stdout.isatty() else sys.stdout.buffer
            sys.stdout.flush()
        except BrokenPipeError:  # the program that reads the pipe has ended, such as `head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    path = Path(target)
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise SetupError(f"can't write {path}: {error.strerror}") from None


class _Terminal(io.RawIOBase):
    """Standard output as a binary file. A terminal shows what is written, but obeys no control character in it."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer
        sys.stdout.write(visible_lines(bytes(data).decode("utf-8", "replace")))
        return len(data)


@contextmanager
def _csv(file: BinaryIO, columns: Sequence[Column]) -> Iterator[Write]:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    write_cells = csv_writer(text, [column.name for column in columns])
    kinds = [column.kind for column in columns]

    def write(some: Sequence[Row]) -> None:
        for row in some:
            cells = zip(row, kinds, strict=True)
            write_cells([[_utc(cell) if kind == "time" and isinstance(cell, int) else cell for cell, kind in cells]])

    try:
        yield write
    finally:
        text.detach()


@contextmanager
def _ndjson(file: BinaryIO, columns: Sequence[Column]) -> Iterator[Write]:
    names = [column.name for column in columns]
    of_kind: dict[str, Callable[[Any], Any]] = {"time": _utc, "json": lambda text: msgspec.Raw(text.encode())}
    shown = [of_kind.get(column.kind, lambda value: value) for column in columns]

    def write(some: Sequence[Row]) -> None:
        for row in some:
            values = [None if value is None else show(value) for show, value in zip(shown, row, strict=True)]
            file.write(_JSON.encode(dict(zip(names, values, strict=True))) + b"\n")

    yield write


@contextmanager
def _parquet(file: BinaryIO, columns: Sequence[Column]) -> Iterator[Write]:
    """Write Parquet, with times as timestamps in UTC."""
    if find_spec("pyarrow") is None:
        raise SetupError("--format parquet needs the extra `parquet`: pip install 'live-board[parquet]'")
    import pyarrow as pa  # noqa: PLC0415 - an extra, which takes a while to load
    import pyarrow.parquet as pq  # noqa: PLC0415

    types = {"text": pa.string(), "json": pa.string(), "integer": pa.int64(), "time": pa.timestamp("us", "UTC")}
    schema = pa.schema([(column.name, types[column.kind]) for column in columns])
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:

        def write(some: Sequence[Row]) -> None:
            if some:
                arrays = [
                    pa.array(values, field.type) for values, field in zip(zip(*some, strict=True), schema, strict=True)
                ]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))

        yield write


def _utc(microseconds: int) -> str:
    return rfc3339(microseconds, 1e6, "microseconds")


# Functions that write a table to a file. The `with` block gets a function that writes rows.
FORMATS: Final[Mapping[str, Callable[[BinaryIO, Sequence[Column]], AbstractContextManager[Write]]]] = {
    "csv": _csv, "ndjson": _ndjson, "parquet": _parquet,
}  # fmt: skip
