"""The runner of `make mutate`."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

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
