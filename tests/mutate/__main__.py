"""`make mutate`: make random mistakes in `live/`, one at a time, and run the tests that cover the line.

The tests of a package are those in the folder of the same name in `tests/`. Coverage is measured once for each state of
the checkout and package, and kept in `.cache/mutate`. The mistakes are made in a copy of the checkout.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, NoReturn

from coverage import CoverageData

from tests.mutate.mutants import Mutant, mutants_of

ROOT: Final = Path(__file__).parents[2]
CACHE: Final = ROOT / ".cache" / "mutate"
COPIED: Final = ("live", "static", "templates", "tests", "docs", "pyproject.toml")
LINKED: Final = (".venv", ".tools")
PATIENCE: Final = 600.0  # seconds for the tests of one mutant: a mistake may end in a loop
FEW: Final = 30  # tests that one process runs before a second one has started
FAILED: Final = 1  # exit status of pytest when a test has failed; others mean that the tests did not run


class Drawn(NamedTuple):
    """A mutant of a file, whose path is relative to the checkout, and the tests that cover its line."""

    path: str
    mutant: Mutant
    tests: list[str]


def main() -> None:
    """Draw mutants, run them, and print what became of each."""
    parser = argparse.ArgumentParser(prog="mutate", description="Count how many random mistakes the tests notice.")
    parser.add_argument("packages", nargs="+", help="packages of live/ that have tests, such as journal or store")
    parser.add_argument("--count", type=int, default=20, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="repeats a run")
    parser.add_argument("--least", type=int, default=0, help="fail if fewer percent are caught")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    say(f"{arguments.count} mutants of {', '.join(arguments.packages)}, --seed {arguments.seed}")
    with checkout_copy() as copy:
        lines = {package: covered_lines(copy, package) for package in arguments.packages}
        caught = 0
        for number, drawn in enumerate(draw(lines, arguments.count, arguments.seed), 1):
            started = time.monotonic()
            verdict = run(copy, drawn)
            caught += verdict == "caught"
            path, mutant = drawn.path, drawn.mutant
            say(
                f"{number:3} {verdict}: {path}:{mutant.line} {mutant.kind}: {mutant.wrong!r} "
                f"({time.monotonic() - started:.0f} s)"
            )
    say(f"{caught} of {arguments.count} mutants caught")
    sys.exit(100 * caught < arguments.least * arguments.count)


def say(text: str) -> None:
    """Print a line immediately."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def checkout_copy() -> Iterator[Path]:
    """Copy what the tests need, without the mistakes of an earlier run."""
    with TemporaryDirectory(prefix="live-mutate-") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / name)
        for name in LINKED:
            (copy / name).symlink_to(ROOT / name)
        yield copy


def pytest_in(copy: Path, *arguments: str, launcher: Sequence[str] = ("-m", "pytest")) -> int:
    """Run pytest in the copy and return its exit status. A run that takes too long has failed."""
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *launcher, "-q", "-p", "no:cacheprovider", *arguments]
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return FAILED
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def covered_lines(copy: Path, package: str) -> dict[tuple[str, int], list[str]]:
    """Find the tests of a package that run each line of it. Measure it if the checkout has changed."""
    known = CACHE / f"{package.replace('/', '.')}-{_state(copy)}"
    if not known.exists():
        say(f"measuring what the tests of {package} cover")
        CACHE.mkdir(parents=True, exist_ok=True)
        data, plain = copy / ".coverage", copy / ".coveragerc"
        plain.write_text("")  # not the settings of `make coverage`, which also measure other processes
        launcher = ["-m", "coverage", "run", f"--rcfile={plain}", f"--data-file={data}", f"--source=live/{package}"]
        tests = ["-p", "tests.mutate.contexts", "-m", "not mutant", f"tests/{package}"]
        if (status := pytest_in(copy, *tests, launcher=[*launcher, "-m", "pytest"])) != 0:
            sys.exit(f"the tests of {package} do not pass without a mistake (pytest ended with {status})")
        data.rename(known)
    found = CoverageData(str(known))
    found.read()
    lines: dict[tuple[str, int], list[str]] = {}
    for measured in found.measured_files():
        path = f"live/{measured.rpartition('/live/')[2]}"
        for line, contexts in found.contexts_by_lineno(measured).items():
            lines[path, line] = sorted(test for test in contexts if test)
    return lines


def _state(copy: Path) -> str:
    """A digest of everything that decides what the tests cover."""
    digest = hashlib.sha256()
    for path in sorted([*(copy / "live").rglob("*.*"), *(copy / "tests").rglob("*.py")]):
        if path.is_file():
            digest.update(path.relative_to(copy).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def draw(lines: dict[str, dict[tuple[str, int], list[str]]], count: int, seed: int) -> list[Drawn]:
    """Draw mutants from all lines of the packages with equal chances.

    A line that runs in another process, or in none, gets all tests of its package.
    """
    chance = random.Random(seed)
    every = [
        (package, path.relative_to(ROOT).as_posix(), mutant)
        for package in lines
        for path in sorted((ROOT / "live" / package).rglob("*.py"))
        for mutant in mutants_of(path.read_bytes())
    ]
    chosen = chance.sample(every, min(count, len(every)))
    return [
        Drawn(path, mutant, lines[package].get((path, mutant.line)) or [f"tests/{package}"])
        for package, path, mutant in chosen
    ]


def run(copy: Path, drawn: Drawn) -> str:
    """Run the tests of a mutant. Returns `caught` or `SURVIVED`, or the exit status of a run that proves nothing."""
    path = copy / drawn.path
    right = path.read_bytes()
    path.write_bytes(drawn.mutant.apply(right))
    try:
        workers = 2 if len(drawn.tests) > FEW or "::" not in drawn.tests[0] else 0
        status = pytest_in(copy, "-x", "--numprocesses", str(workers), "--timeout", "60", *drawn.tests)
    finally:
        path.write_bytes(right)
    return {0: "SURVIVED", FAILED: "caught"}.get(status, f"pytest ended with {status}")


def _end(_signal: int, _frame: object) -> NoReturn:
    sys.exit(130)


if __name__ == "__main__":
    main()
