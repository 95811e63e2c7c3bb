"""The runner of `make mutate`."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.waiting import DEADLINE
from tests.mutate.__main__ import ROOT, outside_tests

RUNNER = """
import signal, sys
from pathlib import Path
from tests.mutate.__main__ import _end
from tests.mutate.collected import Collected

signal.signal(signal.SIGTERM, _end)
tests = Collected(Path(sys.argv[1]), ["test_endless.py"])
try:
    tests.run(tests.names)
finally:
    tests.close()
"""
ENDLESS = """
import os, time
from pathlib import Path

def test_endless():
    Path("new").write_text(str(os.getpid()))
    Path("new").rename("pid")
    time.sleep(600)
"""

VERDICTS = """
import json, sys
from contextlib import closing
from pathlib import Path
from tests.mutate.__main__ import Covered, Drawn, run
from tests.mutate.collected import Collected
from tests.mutate.mutants import mutants_of

copy = Path(sys.argv[1])
test = copy / "tests/one/test_one.py"
(mutant,) = mutants_of((copy / "live/one.py").read_bytes())
for line in json.loads(sys.argv[2]):
    test.write_text(f"import time\\nfrom live.one import ONE, f\\ndef test_one(request):\\n    {line}\\n")
    lines = {"live/one.py": {mutant.line: [""]}} if "ONE" in line else {}
    with closing(Collected(copy, ["tests/one"])) as tests:
        print(run(copy, Drawn("one", "live/one.py", mutant), Covered(lines, {"tests/one/test_one.py"}, {}), tests, 12))
"""
MODULE = """
def f():
    def g():
        return (
            1)
    return g()

ONE = f()
"""
TEST = "tests/one/test_one.py::test_one"
LEFT_OUT = f"SURVIVED, {TEST} fails without the mistake too"
EXPECTED = {
    "assert f() == 1": f"caught by {TEST}",
    "assert ONE == 1": f"caught by {TEST}",
    # With the mistake, this test and its finalizer both fail. A process can run the test only once.
    "request.addfinalizer(lambda: 1 / (2 - f())); vars(time).pop('sleep'); assert f() == 1": f"caught by {TEST}",
    "assert f()": "SURVIVED",
    "assert not f()": LEFT_OUT,
    "time.sleep(60 * (f() - 1))": f"caught by {TEST} without an end",
    "time.sleep(30 * f() - 20)": LEFT_OUT,
}


@pytest.mark.slow
@pytest.mark.alone
def test_a_mistake_counts_as_caught_if_the_test_passes_without_it(tmp_path: Path) -> None:
    """A test that also fails without the mistake, for example on a machine that is too busy, proves nothing."""
    for folder in ("live", "tests", "tests/one"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "live/one.py").write_text(MODULE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = mutant")
    command = [sys.executable, "-B", "-c", VERDICTS, str(tmp_path), json.dumps([*EXPECTED])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert dict(zip(EXPECTED, done.stdout.splitlines(), strict=True)) == EXPECTED


def test_a_runner_that_is_told_to_end_leaves_no_process(tmp_path: Path) -> None:
    """The runner does not wait for the tests of its mutant."""
    (tmp_path / "test_endless.py").write_text(ENDLESS)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    number = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", RUNNER, tmp_path], cwd=ROOT) as runner:
        try:
            end = time.monotonic() + DEADLINE
            while not number.exists():
                assert time.monotonic() < end
                time.sleep(0.02)
            runner.terminate()
            assert runner.wait(30) == 130
            assert not Path("/proc", number.read_text()).exists()
        finally:
            runner.kill()
            if number.exists():
                with suppress(ProcessLookupError):
                    os.kill(int(number.read_text()), signal.SIGKILL)


def test_what_tests_a_module_may_be_in_another_folder() -> None:
    """If a second module imports a module, the tests of the second module may test the first.

    Nearly every module imports the settings, so the settings are left out.
    """
    assert outside_tests(ROOT, "journal", "live/journal/log/lost_entries.py") == {
        "tests/maintenance/test_recover.py", "tests/test_lost_failovers.py",
    }  # fmt: skip
    assert outside_tests(ROOT, "store", "live/store/board/write/merging.py") == {
        "tests/journal/state/test_fold.py", "tests/maintenance/test_merge.py", "tests/maintenance/test_unions.py",
    }  # fmt: skip
    assert outside_tests(ROOT, "store", "live/settings.py") == set()
