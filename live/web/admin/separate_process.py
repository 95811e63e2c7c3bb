"""Does maintenance for the admin page in a separate process, so that viewers and producers do not wait for it."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

import msgspec

from live.errors import EpochLostError, ProblemError, SetupError, StoreUnavailableError
from live.system.processes import CHILDREN, follow_parent

_R = TypeVar("_R")

_LONGEST: Final = 60.0  # seconds
_FREE: Final = threading.Lock()  # held during the work: a process of the server starts one other process at a time


class _Failed(msgspec.Struct, frozen=True):
    """The reason why the work failed, and whether the store was unavailable."""

    why: str
    is_store: bool


async def run_apart(work: Callable[..., _R], *given: object) -> _R:
    """Do work in another process, which ends with the request. Changes that the work has made until then stay.

    Raises:
        ProblemError: other work is under way, the work takes too long, or it failed.
        StoreUnavailableError: the store is unavailable.
    """
    if not _FREE.acquire(blocking=False):
        raise ProblemError("overloaded", "the server already does such work for another administrator", retry_after=10)
    try:
        ours, theirs = CHILDREN.Pipe(duplex=False)
        process = CHILDREN.Process(target=_begin, args=(theirs, work, given), daemon=True)
        await asyncio.to_thread(process.start)
        theirs.close()
        answer = asyncio.create_task(asyncio.to_thread(_receive, ours))
        try:
            found = await asyncio.shield(answer)
        finally:
            process.kill()
            with suppress(EOFError, OSError):
                await answer
            ours.close()
            await asyncio.to_thread(process.join)
    except EOFError:
        raise ProblemError("internal_error", "the process that did the work has ended") from None
    finally:
        _FREE.release()
    if isinstance(found, _Failed):
        raise StoreUnavailableError(found.why) if found.is_store else ProblemError("board_invalid", found.why)
    result: _R = found
    return result


def _receive(pipe: Connection) -> Any:  # noqa: ANN401 - what the work returns
    if pipe.poll(_LONGEST):
        return pipe.recv()
    return _Failed(f"this takes longer than {_LONGEST:.0f} s: use the command", is_store=False)


def _begin(pipe: Connection, work: Callable[..., object], given: tuple[object, ...]) -> None:
    follow_parent()
    try:
        result = work(*given)
    except SetupError as error:
        result = _Failed(str(error), is_store=False)
    except (StoreUnavailableError, EpochLostError) as error:
        result = _Failed(str(error), is_store=True)
    pipe.send(result)
