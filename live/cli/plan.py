"""`live plan`: computes the resources that a load needs, from measured unit costs.

The figures are from one machine on one day. They are rough: they can tell one core from ten, but not ten from eleven.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
import typer
from rich.filesize import decimal
from rich.table import Table

from live.cli.terminal import JsonOption, clear_errors, make_table, out, reported
from live.domain.text import counted
from live.errors import SetupError
from live.settings import load_settings

MICRO: Final = 1e-6
KB: Final = 1e3
MB: Final = 1e6
GB: Final = 1e9

ViewersOption = Annotated[int, typer.Option("--viewers", min=0, help="Viewers on all boards together.")]
FramesOption = Annotated[float, typer.Option("--frames", min=0, max=1000, help="Messages a second to each viewer.")]
EventsOption = Annotated[float, typer.Option("--events", min=0, help="Events a second, spread over the boards.")]
BoardCountOption = Annotated[int, typer.Option("--board-count", min=1, help="Number of boards.")]
MembersOption = Annotated[int, typer.Option("--members", min=0, help="Members of all boards together.")]
SlotsOption = Annotated[int, typer.Option("--slots", min=1, help="In how many slots of its board a member is.")]
IdsOption = Annotated[bool, typer.Option("--ids", help="Each event has an id, by which duplicates are found.")]


class UnitCost(msgspec.Struct, frozen=True):
    """The cost of one unit of work.

    Attributes:
        work: the unit.
        figure: the cost as people read it.
        value: the same cost in seconds of a core, or in bytes.
        part: the part of `python -m bench` that measures it.
        sum: how the figure follows from the output of that part. If it is empty, the part prints the figure itself.
        measured: the day of the measurement.
    """

    work: str
    figure: str
    value: float
    part: str
    sum: str = ""
    measured: str = "2026-11-26"

    @property
    def command(self) -> str:
        """The command that measures the cost again."""
        return f"python -m bench --only {self.part}"


FRAME: Final = UnitCost("a frame to a viewer", "6.1 µs of a server", 6.1 * MICRO, "fan-out")
TICK: Final = UnitCost(
    "a read of a board for its viewers in one process, once per frame", "83 µs of server and store", 83 * MICRO,
    "many-boards", "5 viewers of 23 - 6.4 µs",
)  # fmt: skip
IDLE: Final = UnitCost("a viewer, per second, besides frames", "2.5 µs of a server", 2.5 * MICRO, "idle-viewers")
VIEWER_MEMORY: Final = UnitCost("a viewer", "1.9 KB in a server", 1.9 * KB, "idle-viewers")
PROCESS_MEMORY: Final = UnitCost(
    "a process without viewers", "102 MB", 102 * MB, "crowd", "131 MB - 15,500 viewers of 1.9 KB"
)
FRAME_BYTES: Final = UnitCost("a compressed frame of the top 50", "222 bytes", 222, "egress")
EVENT_SERVER: Final = UnitCost("an event in a body of 1,000", "0.7 µs of a server", 0.7 * MICRO, "ingest-batch")
EVENT_STORE: Final = UnitCost("… in the store", "3.9 µs of a primary", 3.9 * MICRO, "ingest-batch")
ID_SERVER: Final = UnitCost(
    "an event with an id, in a body of 1,000", "2.1 µs of a server", 2.1 * MICRO, "ingest-batch"
)
ID_STORE: Final = UnitCost("… in the store", "6.1 µs of a primary", 6.1 * MICRO, "ingest-batch")
ID_MEMORY: Final = UnitCost("an id that is remembered", "41 bytes in the store", 41, "id-memory")
MEMBER_MEMORY: Final = UnitCost("a member in the ranking and a slot", "215 bytes in the store", 215, "rotation")
MEMBER_LEAVES: Final = UnitCost(
    "a member that leaves with its slot", "16 µs of a primary", 16 * MICRO, "rotation", "16 s / 1,000,000"
)
JOURNAL: Final = UnitCost(
    "an event on its way to SQL", "0.074 µs of a server", 0.074 * MICRO, "journal", "1 s / 13.6 million"
)
JOURNAL_BYTES: Final = UnitCost("an event in SQL", "2.9 bytes", 2.9, "journal", "2.9 MB / 1,000,000")
IDLE_BOARD: Final = UnitCost(
    "a board without viewers or events, per second and process", "0.45 µs of a server", 0.45 * MICRO,
    "unwatched-boards", "(12.7 - 8.2) ms / 10,000",
)  # fmt: skip
BOARD_START: Final = UnitCost(
    "a board when a process starts", "0.34 ms", 340 * MICRO, "unwatched-boards", "3.4 s / 10,000"
)

UNIT_COSTS: Final = (
    FRAME, TICK, IDLE, VIEWER_MEMORY, PROCESS_MEMORY, FRAME_BYTES, EVENT_SERVER, EVENT_STORE, ID_SERVER, ID_STORE,
    ID_MEMORY, MEMBER_MEMORY, MEMBER_LEAVES, JOURNAL, JOURNAL_BYTES, IDLE_BOARD, BOARD_START,
)  # fmt: skip

SERVER_BUSY: Final = 0.7  # share of a core that a process may use; the rest is for bursts
STORE_BUSY: Final = 0.4  # share of a primary's core; the rest is for rotation, reads, and other programs
LEAST_PRIMARIES: Final = 3  # primaries that a Cluster has at least
_DAY: Final = 86400.0  # seconds
_MUCH_EGRESS: Final = 1 * GB  # a second
_MUCH_MEMORY: Final = 64 * GB  # for ids
_MANY_MEMBERS: Final = 10_000_000  # members of a board; a slot with as many members leaves the window in eleven minutes
_TOO_MANY_MEMBERS: Final = 100_000_000
_MUCH_SQL: Final = 100 * GB  # a day
_MANY_PRIMARIES: Final = 6
_MANY_PROCESSES: Final = 8


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """A load to plan for.

    Attributes:
        viewers: open connections, on all boards together.
        frames: messages a second to each viewer.
        events: events a second, spread evenly over the boards, in bodies of 1,000.
        boards: boards.
        members: members of all boards together.
        slots: in how many slots of its board a member is.
        has_ids: whether each event has an id.
        dedupe_window: for how many seconds ids are remembered.
        process_viewers: viewers that a process may have.
        max_boards: boards that the server may have.
    """

    viewers: int = 0
    frames: float = 1
    events: float = 0
    boards: int = 1
    members: int = 0
    slots: int = 1
    has_ids: bool = False
    dedupe_window: float = _DAY
    process_viewers: int = 20_000
    max_boards: int = 1000


class CapacityPart(msgspec.Struct, frozen=True):
    """The resources that one part of the installation needs. `memory` and `bytes_per_second` are in bytes."""

    count: int
    cores: float
    memory: float
    bytes_per_second: float = 0.0


class CapacityPlan(msgspec.Struct, frozen=True):
    """The resources that a load needs, and where another engine is the better choice.

    Attributes:
        viewer_processes: processes with the role `viewers`.
        ingest_processes: processes with the role `ingest`.
        primaries: primaries of the store. Each replica takes as much memory again.
        sql_bytes_per_day: what the journal adds to its database.
        advice: sentences about settings, limits and other engines.
    """

    viewer_processes: CapacityPart
    ingest_processes: CapacityPart
    primaries: CapacityPart
    sql_bytes_per_day: float
    advice: list[str]


def plan(demand: Demand) -> CapacityPlan:
    """Compute the resources that a load needs."""
    ticks = _boards_shown(demand) * demand.frames
    frames = demand.viewers * demand.frames
    board_cores = demand.boards * IDLE_BOARD.value
    viewing = frames * FRAME.value + ticks * TICK.value + demand.viewers * IDLE.value
    viewer_count = max(_processes(viewing), math.ceil(demand.viewers / demand.process_viewers))
    server, store = (ID_SERVER, ID_STORE) if demand.has_ids else (EVENT_SERVER, EVENT_STORE)
    taking = demand.events * (server.value + JOURNAL.value)
    ingest_count = _processes(taking + board_cores)
    storing = demand.events * store.value
    primaries = max(1, math.ceil(storing / STORE_BUSY))
    held = demand.members * demand.slots * MEMBER_MEMORY.value + _ids(demand)
    return CapacityPlan(
        viewer_processes=CapacityPart(
            viewer_count,
            viewing + viewer_count * board_cores,
            demand.viewers * VIEWER_MEMORY.value + viewer_count * PROCESS_MEMORY.value,
            frames * FRAME_BYTES.value,
        ),
        ingest_processes=CapacityPart(
            ingest_count, taking + ingest_count * board_cores, ingest_count * PROCESS_MEMORY.value
        ),
        primaries=CapacityPart(primaries if primaries == 1 else max(LEAST_PRIMARIES, primaries), storing, held),
        sql_bytes_per_day=demand.events * JOURNAL_BYTES.value * _DAY,
        advice=list(_advice(demand, viewer_count, primaries, store.value)),
    )


def _processes(cores: float) -> int:
    return math.ceil(cores / SERVER_BUSY)


def _boards_shown(demand: Demand) -> int:
    """Count the boards that each process reads, and add up these counts.

    The viewers of a board are in as few processes as possible.
    """
    if not demand.viewers:
        return 0
    return max(math.ceil(demand.viewers / demand.process_viewers), min(demand.boards, demand.viewers))


def _ids(demand: Demand) -> float:
    """Return the bytes of the ids that are remembered."""
    return demand.events * demand.dedupe_window * ID_MEMORY.value if demand.has_ids else 0


def _advice(demand: Demand, processes: int, primaries: int, event_cost: float) -> Iterator[str]:
    """Yield the sentences of advice."""
    limit = 1 / event_cost
    if demand.events / demand.boards > limit:
        yield (
            f"Flink, Kafka Streams or Redpanda Connect: one board, on one primary, takes {limit:,.0f} events a second. "
            "Add up the amounts of each member for 100 ms there, and post the sums under one id for each window and "
            "partition."
        )
    elif primaries > demand.boards:
        yield f"A board lives on one primary, so {counted(demand.boards, 'board')} can't use {primaries} of them."
    if _ids(demand) > _MUCH_MEMORY:
        yield (
            f"Kafka or Redpanda with idempotent producers: ids of {demand.dedupe_window / 3600:g} hours take "
            f"{_ids(demand) / GB:,.0f} GB of memory. Remove duplicates there, and set LIVE_DEDUPE_WINDOW=15m."
        )
    members = demand.members / demand.boards
    if members > _TOO_MANY_MEMBERS:
        yield "ClickHouse: rank so many members of one board there, and keep a board for its top."
    elif members > _MANY_MEMBERS:
        leaves = members * MEMBER_LEAVES.value / STORE_BUSY / 60
        yield f"A large primary for each board of so many members. A slot takes {leaves:,.0f} minutes to leave."
    if demand.events * JOURNAL_BYTES.value * _DAY > _MUCH_SQL:
        yield (
            "PostgreSQL for the journal, with a short LIVE_JOURNAL_EVENTS. For analysis, export Parquet files with "
            "`live export --events` and load them into ClickHouse."
        )
    if demand.viewers * demand.frames * FRAME_BYTES.value > _MUCH_EGRESS:
        yield (
            "A longer LIVE_CONFLATION_INTERVAL: the traffic costs more than the processors. A CDN for viewers who can "
            "poll: with LIVE_CACHE=1s they cost one request a second for each location of the CDN."
        )
    if processes > _MANY_PROCESSES:
        yield "A replica of the store for each region, with viewer processes beside it."
        if demand.boards > 1:
            yield "Let the proxy send the viewers of a board to the same processes, such as by a hash of the path."
    if primaries > _MANY_PRIMARIES:
        yield "A managed service with the Cluster protocol, such as MemoryDB, if nobody wants to run the primaries."
    if demand.boards > demand.max_boards:
        start = demand.boards * BOARD_START.value
        yield f"LIVE_MAX_BOARDS={demand.boards}. A process then takes {start:,.0f} s to start."


def show_plan(  # noqa: PLR0913 - one parameter per flag
    *,
    viewers: ViewersOption = 0,
    frames: FramesOption = 1.0,
    events: EventsOption = 0.0,
    boards: BoardCountOption = 1,
    members: MembersOption = 0,
    slots: SlotsOption = 1,
    ids: IdsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say how many processes and primaries, and how much memory and traffic, a load needs.

    The advice below the table says where another engine is better. The figures follow from unit costs that were
    measured on one machine: expect half or twice as much on yours. The command asks no server. It reads
    LIVE_MAX_VIEWERS, LIVE_MAX_BOARDS and LIVE_DEDUPE_WINDOW.

    Example: live plan --viewers 1000000 --frames 1 --events 1000000 --board-count 100000
    """
    with clear_errors():
        settings = load_settings()
        if not (viewers or events or members):
            raise SetupError("there is nothing to plan: give --viewers, --events or --members")
        if viewers and not settings.max_viewers:
            raise SetupError("LIVE_MAX_VIEWERS is 0, so no process takes viewers: set it to 1 or more")
        made = plan(
            Demand(
                viewers=viewers,
                frames=frames,
                events=events,
                boards=boards,
                members=members,
                slots=slots,
                has_ids=ids,
                dedupe_window=settings.dedupe_window,
                process_viewers=settings.max_viewers or 1,
                max_boards=settings.max_boards,
            )
        )
    if reported(made, as_json=as_json):
        return
    numbers = ["count", "cores", "memory", "traffic"]
    table = make_table("", *numbers, numbers=numbers)
    _add(table, "viewer processes", made.viewer_processes)
    _add(table, "ingest processes", made.ingest_processes)
    _add(table, "primaries of the store", made.primaries, "give --members")
    out.print(table)
    if made.sql_bytes_per_day:
        out.print(f"The journal adds {decimal(round(made.sql_bytes_per_day))} a day to its database.")
    if made.advice:
        out.print()
        out.print("Beyond the figures:")
        for line in made.advice:
            out.print(f"- {line}")
    out.print()
    out.print(f"Unit costs of {max(cost.measured for cost in UNIT_COSTS)}; docs/scaling.md lists them.")


def _add(table: Table, name: str, part: CapacityPart, unknown: str = "\u2013") -> None:
    traffic = f"{decimal(round(part.bytes_per_second))}/s" if part.bytes_per_second else "\u2013"
    memory = decimal(round(part.memory)) if part.memory else unknown
    table.add_row(name, f"{part.count:,}", f"{part.cores:,.1f}", memory, traffic)
