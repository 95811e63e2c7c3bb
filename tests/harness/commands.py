"""Commands of `live`, in this process."""

import os
from subprocess import CompletedProcess
from typing import Final
from unittest.mock import patch

from structlog.testing import capture_logs
from typer.testing import CliRunner

import live.process.serve
from live.cli.main import app
from live.system.data_directory import UMASK

BARE: Final = {name: value for name, value in os.environ.items() if not name.startswith("LIVE_")}


def run_command(*words: str, **environment: str) -> CompletedProcess[str]:
    """Run a command to its end, without a terminal. It sees no `LIVE_` variables but those of `environment`."""
    unset = dict.fromkeys(name for name in os.environ if name.startswith("LIVE_"))
    umask = os.umask(UMASK)
    try:
        with (
            patch.object(live.process.serve, "configure_logs"),
            patch.object(live.process.serve, "signal"),
            capture_logs(),
        ):
            ended = CliRunner().invoke(app, words, env={**unset, **environment}, catch_exceptions=False)
    finally:
        os.umask(umask)
    return CompletedProcess(words, ended.exit_code, ended.stdout, ended.stderr)
