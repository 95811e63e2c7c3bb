"""Puts the commit into the built package, so that an installed server can name it."""

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "live/system/commit.txt"  # which live/system/version.py reads


class CommitHook(BuildHookInterface[Any]):
    """Takes the commit from the checkout, or from the variable COMMIT where there is no `.git`, as in the image."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file, unless it exists, the checkout itself is installed, or nobody knows the commit."""
        if version == "editable" or (Path(self.root) / PLACE).exists():
            return
        commit = os.environ.get("COMMIT", "")[:8] or self._of_checkout()
        if re.fullmatch("[0-9a-f]{8}", commit):
            self._folder = tempfile.TemporaryDirectory()
            made = Path(self._folder.name) / "commit.txt"
            made.write_text(f"{commit}\n", encoding="ascii")
            build_data["force_include"][str(made)] = PLACE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the file, which is in the artifact now."""
        if folder := getattr(self, "_folder", None):
            folder.cleanup()

    def _of_checkout(self) -> str:
        if not (Path(self.root) / ".git").exists():
            return ""
        command = ["git", "-C", self.root, "rev-parse", "--short=8", "HEAD"]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        except OSError:
            return ""
