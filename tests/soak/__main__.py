"""`make soak`: random faults under load. It exits with 1 unless acknowledged events, store and journal agree."""

import argparse
import asyncio
import random
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp

from tests.harness.postgres import has_postgres
from tests.soak.load import Acknowledged, Producer
from tests.soak.machine import Machine
from tests.soak.verdict import verdict

_PRODUCERS = 6
_REPORT = 10.0  # seconds


def say(text: str) -> None:
    """Print a line immediately."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def soak(machine: Machine, seconds: float, seed: int) -> list[str]:
    """Cause faults under load for so many seconds; returns what is wrong at the end."""
    known, stop = Acknowledged(), asyncio.Event()
    url = f"http://127.0.0.1:{machine.settings.port}"
    producers = [Producer(number, url, random.Random(f"{seed} {number}"), known) for number in range(_PRODUCERS)]
    started = time.monotonic()
    end = started + seconds

    async def report() -> None:
        while True:
            await asyncio.sleep(_REPORT)
            say(
                f"{time.monotonic() - started:4.0f} s: {known.events:,} events acknowledged, "
                f"{sum(producer.repeated for producer in producers):,} bodies repeated, "
                f"{sum(machine.faults.values())} faults"
            )

    reporting = asyncio.create_task(report())
    try:
        async with asyncio.TaskGroup() as tasks:
            for producer in producers:
                tasks.create_task(producer.run(stop))
            async with asyncio.TaskGroup() as troubles:
                for group in range(len(machine.troubles)):
                    troubles.create_task(machine.trouble(group, end))
            machine.calm()
            stop.set()
    finally:
        reporting.cancel()
    say(f"faults: {', '.join(f'{count} x {name}' for name, count in sorted(machine.faults.items()))}")
    say(f"refused: {', '.join(f'{count} x {code}' for code, count in sorted(known.refused.items())) or 'nothing'}")
    faults = await verdict(machine, known)
    say(f"{known.events:,} events were acknowledged")
    return faults


def run(seconds: float, seed: int, *, postgres: bool) -> list[str]:
    """Set up a machine, and run the soak on it. Keep its folder if something is wrong."""
    folder = Path(mkdtemp(prefix="live-soak-"))
    say(f"soak: {seconds:.0f} s, seed {seed}, journal in {'PostgreSQL' if postgres else 'SQLite'}, in {folder}")
    with ExitStack() as stack:
        machine = Machine(folder, stack, random.Random(seed), postgres=postgres)
        machine.start()
        faults = asyncio.run(soak(machine, seconds, seed))
        if faults:
            shutil.copytree(machine.data, folder / "kept", ignore=shutil.ignore_patterns("*.sock", "ballast"))
    if not faults:
        shutil.rmtree(folder)
    return faults


def main() -> None:
    """Run the soak that the command line asks for."""
    parser = argparse.ArgumentParser(prog="soak")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--postgres", action="store_true", help="keep the journal in PostgreSQL")
    arguments = parser.parse_args()
    if arguments.postgres and not has_postgres():
        sys.exit("soak: needs a PostgreSQL server")
    faults = run(arguments.seconds, arguments.seed, postgres=arguments.postgres)
    for fault in faults:
        say(f"WRONG: {fault}")
    if faults:
        sys.exit(1)
    say("acknowledged = store = journal; check and journal verify are clean")


if __name__ == "__main__":
    main()
