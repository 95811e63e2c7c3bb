"""A process that has collected tests, and forks for each mutant, so that imports and collection happen only once."""

import gc
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final, NoReturn

import pytest

OUTPUT: Final = "output"  # pytest writes to this file of the copy
BEGUN: Final = "begun"  # this file of the copy names the test that was started last
LONGEST: Final = 45.0  # seconds for one test, because a mistake may cause an endless loop
ENDLESS: Final = -1  # in place of an exit status: one test took longer than `LONGEST`
UNLIKE: Final = 70  # an exit status: the source can't be changed in a process that has imported the module
_OPTIONS: Final = ("-q", "-x", "--capture=sys", "-p", "no:cacheprovider", "--timeout", "0", "-m", "not mutant")


class Collected:
    """Collected tests of a copy of the checkout. `names` has the tests that can run."""

    def __init__(self, copy: Path, paths: Sequence[str]) -> None:
        """Import and collect the tests in a fork of this process, which has imported the libraries."""
        context = get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_collect, args=(copy, paths, theirs))
        self._process.start()
        theirs.close()
        names = self._receive()
        self.names: Sequence[str] = names if isinstance(names, list) else ()

    def run(
        self, tests: Iterable[str], longest: float = LONGEST, changed: tuple[str, bytes] | None = None
    ) -> int | None:
        """Run tests until one fails, and return the exit status of pytest; None if they could not be collected.

        No test may take longer than `longest` seconds. `changed` is the path of a module, and its source from now on.
        """
        if not self._process.is_alive():
            return None
        held = set(self.names)
        self._pipe.send(([test for test in tests if test in held], longest, changed))
        status = self._receive()
        assert isinstance(status, int)
        return status

    def close(self) -> None:
        """End the process, and the process that runs tests now."""
        self._process.terminate()
        self._process.join()
        self._pipe.close()

    def _receive(self) -> list[str] | int | None:
        with suppress(EOFError):
            answer: list[str] | int = self._pipe.recv()
            return answer
        return None


class _Runs:
    def __init__(self, copy: Path, pipe: Connection) -> None:
        self._copy, self._pipe = copy, pipe
        self._test = 0  # the id of the process that runs tests

    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Serve until the other end is closed. In a fork, go on with the tests that are wanted."""
        if session.testsfailed:
            return
        items = {item.nodeid: item for item in session.items}
        self._pipe.send(list(items))
        signal.signal(signal.SIGTERM, self._end)
        while True:
            try:
                tests, longest, changed = self._pipe.recv()
            except EOFError:
                self._end()
            self._test = os.fork()
            if not self._test:
                _become(self._copy, OUTPUT)
                (self._copy / BEGUN).write_text("")
                if changed is not None and not change(*changed):
                    os._exit(UNLIKE)
                session.items[:] = [items[test] for test in tests]
                return
            self._pipe.send(self._await(longest))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write the name of the test that begins now: its time counts from then on."""
        (self._copy / BEGUN).write_text(nodeid)

    def _await(self, longest: float) -> int:
        status, begun = 0, self._copy / BEGUN
        started = time.time()
        while not os.waitid(os.P_PID, self._test, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            with suppress(FileNotFoundError):
                started = max(started, begun.stat().st_mtime)
            if time.time() - started > longest:
                self._kill()
                return ENDLESS
            time.sleep(0.02)
        status = os.waitstatus_to_exitcode(os.waitpid(self._test, 0)[1])
        self._kill()
        return status

    def _kill(self) -> None:
        """End also the servers that the tests may have left behind."""
        if self._test:
            with suppress(ProcessLookupError):
                os.kill(self._test, signal.SIGKILL)  # the process may not lead its own group yet
            with suppress(ProcessLookupError):
                os.killpg(self._test, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._test, 0)

    def _end(self, *_: object) -> NoReturn:
        self._kill()
        os._exit(0)


def _collect(copy: Path, paths: Sequence[str], pipe: Connection) -> NoReturn:
    """Collect like a process that was started in the copy, and run tests on request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _become(copy, "collected")
    os.chdir(copy)
    os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.path[:0] = [str(copy)]
    sys.dont_write_bytecode = True
    for name in [name for name in sys.modules if name.split(".")[0] in {"live", "tests"}]:
        del sys.modules[name]
    # Processes that the tests spawn would import the former main module.
    sys.modules["__main__"] = ModuleType("__main__")
    os._exit(pytest.main([*_OPTIONS, *paths], plugins=[_Runs(copy, pipe)]))


def _become(copy: Path, output: str) -> None:
    """Lead a new group of processes."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(copy / output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    os.dup2(1, 2)


def change(path: str, source: bytes) -> bool:
    """Give the functions of an imported module the code of a new source. Return False if that is not possible."""
    new = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compile(source, path, "exec"))}
    gc.unfreeze()  # `gc.get_objects` leaves out frozen objects
    found = False
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == path:
            code = new.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if code is None or code.co_freevars != function.__code__.co_freevars:
                return False
            function.__code__, found = code, True
    gc.freeze()
    return found or not any(getattr(module, "__file__", None) == path for module in sys.modules.values())


def _codes(code: CodeType) -> Iterable[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
