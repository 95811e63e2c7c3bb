"""`make` names what the machine lacks, and then makes nothing."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
OLD: Final = '#!/bin/sh\ntest "$1" != --version || echo Python 3.9.2\ntest "$1" = --version\n'


def test_a_missing_or_old_python_is_named(tmp_path: Path) -> None:
    """The message names the variable for another Python. No half-made virtual environment is left."""
    for part in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / part, tmp_path)
    shutil.copytree(ROOT / "tests" / "tools", tmp_path / "tests" / "tools")
    shutil.copy(ROOT / "tests" / "install-system.sh", tmp_path / "tests")
    (tmp_path / "old").write_text(OLD, encoding="ascii")
    (tmp_path / "old").chmod(0o755)
    for python, words in (("python9", "Missing: python9."), ("./old", "Python 3.9.2 is too old")):
        ended = subprocess.run(
            ["make", "run", f"PYTHON={python}"],  # noqa: S607
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode != 0
        assert words in ended.stderr
        assert "make run PYTHON=python3.12" in ended.stderr
        assert not (tmp_path / ".venv").exists()
