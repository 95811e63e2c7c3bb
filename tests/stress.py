"""`make stress`: repeat tests beside busy processes, and count how often each of them passes."""

import argparse
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NoReturn
from xml.etree import ElementTree as ET

ROOT: Final = Path(__file__).parents[1]
BUSY: Final = "while True: pass"
PYTEST: Final = (sys.executable, "-m", "pytest", "--quiet")
ALONE: Final = ("--numprocesses", "2", "--dist", "load", "--maxschedchunk", "1", "--max-worker-restart", "2")


def main() -> None:
    """Repeat the tests, and print for each that failed how often it passed."""
    parser = argparse.ArgumentParser(prog="stress", description="Count how often tests pass beside busy processes.")
    parser.add_argument("tests", nargs="*", help="tests or files to repeat, beside those with the mark")
    parser.add_argument("--times", type=int, default=30, help="how often")
    parser.add_argument("--minutes", type=float, default=120, help="no repetition begins after this time")
    parser.add_argument("--mark", default="alone", help="the tests to repeat; empty: only the named ones")
    parser.add_argument("--busy", type=int, default=2, help="how many busy processes run beside the tests")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    names = [*(collected("-m", arguments.mark) if arguments.mark else ()), *arguments.tests]
    if not names:
        parser.error("name a mark or tests")
    ended, failures = 0, Counter[str]()
    end = time.monotonic() + 60 * arguments.minutes
    with busy(arguments.busy):
        while ended < arguments.times and time.monotonic() < end:
            failed = run(dict.fromkeys(names))
            ended += 1
            failures.update(failed)
            say(f"{ended} of {arguments.times}: {', '.join(failed) or 'all passed'}")
    for name, count in failures.most_common():
        say(f"{name} passed {ended - count} of {ended}")
    if ended and not failures:
        say(f"all tests passed {ended} of {ended}")
    if ended < arguments.times:
        say(f"only {ended} of {arguments.times} repetitions began within {arguments.minutes:g} minutes")
    sys.exit(bool(failures) or ended < arguments.times)


def _end(_signal: int, _frame: object) -> NoReturn:
    """End with an exception, so that no process is left."""
    raise KeyboardInterrupt


def say(text: str) -> None:
    """Print a line immediately."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def collected(*options: str) -> list[str]:
    """List the tests that pytest finds."""
    found = subprocess.run([*PYTEST, "--collect-only", *options], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if "::" in line]


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep cores busy while in the context."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run(names: Iterable[str]) -> list[str]:
    """Run tests once, and return those that failed. Show the output of pytest if any failed.

    Raises:
        RuntimeError: no test ran.
    """
    with TemporaryDirectory(prefix="live-stress-") as folder:
        results = Path(folder) / "results.xml"
        ended = subprocess.run(
            [*PYTEST, *ALONE, "--junit-xml", str(results), *names],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if ended.returncode:
            say(ended.stdout)
        if not results.exists():
            raise RuntimeError(f"pytest ended with {ended.returncode}, and without results")
        cases = ET.parse(results).getroot().iter("testcase")  # noqa: S314 - pytest wrote it
        return [name_of(case) for case in cases if case.find("failure") is not None or case.find("error") is not None]


def name_of(case: ET.Element) -> str:
    """Return the name by which pytest runs a test."""
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


if __name__ == "__main__":
    main()
