"""The runner of `make mutate`."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.waiting import DEADLINE
from tests.mutate.__main__ import ROOT, importing

RUNNER = """
import signal, sys
from pathlib import Path
from tests.mutate.__main__ import _end, pytest_in

signal.signal(signal.SIGTERM, _end)
pytest_in(Path(sys.argv[1]), "test_endless.py")
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
import sys
from pathlib import Path
from tests.mutate.__main__ import Drawn, run
from tests.mutate.mutants import mutants_of

copy = Path(sys.argv[1])
(mutant,) = mutants_of((copy / "live/one.py").read_bytes())
for test in ("f() == 1", "not f()"):
    (copy / "tests/one/test_one.py").write_text(f"from live.one import f\\ndef test_one():\\n    assert {test}\\n")
    print(run(copy, Drawn("live/one.py", mutant, "one", ["tests/one/test_one.py"])))
"""


@pytest.mark.slow
def test_a_mistake_counts_as_caught_if_the_test_passes_without_it(tmp_path: Path) -> None:
    """A test that fails in any case, such as one on a machine that is too busy, proves nothing."""
    for folder in ("live", "tests", "tests/one"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "live/one.py").write_text("def f():\n    return 1\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = mutant")
    command = [sys.executable, "-B", "-c", VERDICTS, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    test = "tests/one/test_one.py::test_one"
    assert done.stdout.splitlines() == [f"caught by {test}", f"UNCLEAR: {test} fails without the mistake too"]


def test_a_runner_that_is_told_to_end_leaves_no_process(tmp_path: Path) -> None:
    """It does not wait for the tests of the mutant."""
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


def test_files_beside_the_packages_are_tests_of_the_modules_that_they_import() -> None:
    """Nearly every test imports the settings, so those are no subject."""
    assert importing(ROOT, "live/journal/log/resending.py") == ["tests/test_lost_failovers.py"]
    assert importing(ROOT, "live/settings.py") == []
