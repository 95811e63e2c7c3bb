"""The version of this code: the release, and the commit if it runs from a checkout."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Final

_CHECKOUT: Final = Path(__file__).parents[2]
_BUILT: Final = Path(__file__).with_name("commit.txt")  # an image or a package may contain this file


@cache
def commit() -> str:
    """Return the first digits of the commit. Return an empty text if the commit is unknown."""
    if _BUILT.exists():
        return _BUILT.read_text(encoding="ascii").strip()
    if not (_CHECKOUT / ".git").exists():
        return ""
    command = ["git", "-C", str(_CHECKOUT), "rev-parse", "--short=8", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip()
