"""`python -m bench` runs the benchmarks and prints one table."""

import argparse
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from bench.batch import ingest_batch
from bench.cluster import cluster
from bench.crowd import crowd
from bench.defining import defining
from bench.delay import delayed
from bench.egress import egress
from bench.fanout import fan_out
from bench.growth import growth
from bench.idle import idle_viewers
from bench.increment import increment
from bench.journal import journal
from bench.kinds import kinds
from bench.latency import likes_to_frames
from bench.many import many_boards
from bench.memory import id_memory
from bench.pages import pages
from bench.past import past
from bench.processes import BenchError
from bench.reads import get_top_100
from bench.recover import recover
from bench.replicas import replicas
from bench.rotation import rotation
from bench.single import ingest_single
from bench.storm import reconnect_storm
from bench.swap import swap
from bench.swarm import raise_file_limit
from bench.table import QUICK, Report, Row, Scale, print_table
from bench.unwatched import unwatched_boards
from bench.workers import workers

PARTS: Final[dict[str, Callable[[Scale, Report], list[Row]]]] = {
    "ingest-single": ingest_single,
    "ingest-batch": ingest_batch,
    "journal": journal,
    "past": past,
    "recover": recover,
    "swap": swap,
    "kinds": kinds,
    "growth": growth,
    "cluster": cluster,
    "replicas": replicas,
    "id-memory": id_memory,
    "rotation": rotation,
    "fan-out": fan_out,
    "delay": delayed,
    "egress": egress,
    "increment": increment,
    "many-boards": many_boards,
    "unwatched-boards": unwatched_boards,
    "defining": defining,
    "workers": workers,
    "idle-viewers": idle_viewers,
    "crowd": crowd,
    "reconnect-storm": reconnect_storm,
    "likes-to-frames": likes_to_frames,
    "get-top-100": get_top_100,
    "pages": pages,
}


def main() -> None:
    """Run the selected benchmarks."""
    parser = argparse.ArgumentParser(prog="bench", description="CPU time per unit of work, compared with baselines.")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="NAME", help=f"one of {', '.join(PARTS)}")
    parser.add_argument(
        "--quick", action="store_true", help="short runs, to check that the benchmarks work; do not quote their figures"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE as JSON")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)  # SIGTERM also ends the processes that the benchmarks have started
    raise_file_limit()
    rows: list[Row] = []
    failed = run(arguments.only or list(PARTS), QUICK if arguments.quick else Scale(), rows)
    print(machine() + ("; quick run: do not quote" if arguments.quick else ""))
    print_table(rows)
    if arguments.json is not None:
        document = {"machine": machine(), "quick": arguments.quick, "rows": rows}
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
    if failed:
        sys.exit(f"bench: failed: {', '.join(failed)}")


def run(names: Sequence[str], scale: Scale, rows: list[Row]) -> list[str]:
    """Run benchmarks one after another, add their rows, and show progress on a terminal.

    Returns:
        The benchmarks that failed. After an interrupt, the last of them is the benchmark that was interrupted.
    """
    console = Console(stderr=True, highlight=False)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    failed = []
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for name in names:
            task = progress.add_task(name, total=None, note="")

            def report(note: str, task: TaskID = task) -> None:
                progress.update(task, note=note)

            try:
                rows += PARTS[name](scale, report)
            except (BenchError, KeyboardInterrupt) as error:
                failed.append(name)
                rows.append(Row(work=name, measured=f"failed: {error}"))
                if isinstance(error, KeyboardInterrupt):
                    break
            progress.update(task, total=1, completed=1, note="")
    return failed


def machine() -> str:
    """Describe where and when the figures were measured."""
    return (
        f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}, "
        f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC"
    )


def _end(_signal: int, _frame: object) -> NoReturn:
    sys.exit(143)


if __name__ == "__main__":
    main()
