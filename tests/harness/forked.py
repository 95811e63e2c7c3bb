"""Runs the command `live` in processes that are forked from a process that has already imported it.

The tests start a thousand such processes, and importing takes half a second, longer than most tests. A test that needs
another interpreter, or must load a library before `live`, starts `python` instead.
"""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import active_children
from multiprocessing.util import Finalize
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired

from live.cli.main import main
from live.system.processes import CHILDREN

CHILDREN.set_forkserver_preload([__name__, "tests.harness.preloaded_commands"])


def _kill_children() -> None:
    for process in active_children():
        process.kill()


# A failed test may leave a server. When the process of the tests ends, `multiprocessing` would wait for the server.
Finalize(None, _kill_children, exitpriority=1)


class ForkedProcess:
    """A process that runs a command, with those methods of `subprocess.Popen` that tests use."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], folder: Path, out: Path, err: Path
    ) -> None:
        """Start the process in a folder. Its output is appended to the files `out` and `err`."""
        given = list(words), dict(environment), folder, out, err
        self._process = CHILDREN.Process(target=_run, args=given)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status; negative for a signal, None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit status."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process and return the exit status."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise TimeoutExpired("live", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal if the process still runs."""
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """End the process with SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """End the process as `kill -9` does."""
        self._process.kill()


def run_live(*words: str, environment: Mapping[str, str], timeout: float = 60) -> CompletedProcess[str]:
    """Run a command to its end, without a terminal, with only these environment variables."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = ForkedProcess(words, environment, Path.cwd(), out, err)
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
        return CompletedProcess(words, status, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))


def _run(words: Sequence[str], environment: Mapping[str, str], folder: Path, out: Path, err: Path) -> None:
    for descriptor, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    os.chdir(folder)
    sys.argv = ["live", *words]
    main()
