"""`make stress` counts how often each test passes."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
TESTS: Final = """
from pathlib import Path

def test_always():
    pass

def test_once():
    Path(__file__).with_name("ran").mkdir()
"""


@pytest.mark.slow
def test_a_test_that_fails_at_times_is_named(tmp_path: Path) -> None:
    """The last lines say how often it passed. The exit status is 1 after a failure, and after too few repetitions."""
    (tmp_path / "test_both.py").write_text(TESTS, encoding="ascii")

    def stress(name: str, *options: str) -> tuple[int, list[str]]:
        command = [sys.executable, "-m", "tests.stress", str(tmp_path / name), "--mark", "", "--busy", "1", *options]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert not ended.stderr
        return ended.returncode, ended.stdout.splitlines()

    status, lines = stress("test_both.py", "--times", "2")
    assert (status, lines[0]) == (1, "1 of 2: all passed")
    assert lines[-1].endswith("test_both.py::test_once passed 1 of 2")
    assert "FileExistsError" in "\n".join(lines)
    status, lines = stress("test_both.py", "--minutes", "0")
    assert (status, lines) == (1, ["only 0 of 30 repetitions began within 0 minutes"])
