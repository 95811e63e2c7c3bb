"""Logs: one JSON object per line, or text on a terminal. All text from users is escaped.

Repeated warnings and errors are counted. The first line of a cause is logged at once. After that, one line every 10
seconds says how often it was repeated (`repeated`), and a line that begins with `over:` says that it is repeated no
more. Every other line is logged.
"""

import atexit
import logging
import os
import sys
import threading
import time
from io import StringIO
from types import TracebackType
from typing import Any, Final, TextIO

import structlog
from structlog.typing import ExcInfo

from live.domain.text import visible_lines

PERIOD: Final = 10.0  # seconds
_MOST_CAUSES: Final = 1000
_TEXT: Final = 80  # characters of a line that distinguish causes

# Tracebacks do not show the values of variables, which can contain passwords and user data.
_TRACEBACKS = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))


def _plain_traceback(file: TextIO, info: ExcInfo) -> None:
    """Write a traceback, with control characters in its messages escaped."""
    text = StringIO()
    structlog.dev.plain_traceback(text, info)
    file.write(visible_lines(text.getvalue()))


def configure_logs(level: str) -> None:
    """Send our own logs and the logs of the libraries to standard error, in one format."""
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:  # this process is one of several workers
        shared.append(structlog.processors.CallsiteParameterAdder([structlog.processors.CallsiteParameter.PROCESS]))
    renderer: list[structlog.types.Processor] = (
        [structlog.dev.ConsoleRenderer(exception_formatter=_plain_traceback, repr_native_str=True)]
        if sys.stderr.isatty()
        else [_TRACEBACKS, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    repeats = Repeats()
    handler.addFilter(repeats)
    atexit.register(repeats.close)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class _Cause:
    """A line that was logged, the time of its last report, and how often it was repeated since then and in total."""

    __slots__ = ("count", "level", "reason", "reported", "text", "timer", "total")

    def __init__(self, text: str, level: int, reported: float) -> None:
        self.text = text
        self.reason: object = None  # the `reason` of the last line that was not logged, or None
        self.level = level
        self.reported = reported
        self.count = self.total = 0
        self.timer: threading.Timer | None = None  # active while the line is repeated


class Repeats(logging.Filter):
    """A filter that counts the lines of the same cause instead of logging each line.

    The cause of a line is its text, its board, and the place in the code where its exception was raised.
    """

    def __init__(self, period: float = PERIOD) -> None:
        super().__init__()
        self._period = period
        self._causes: dict[tuple[object, ...], _Cause] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to log a line. A warning or an error is logged only if none of its cause was logged recently."""
        line: dict[str, Any] = record.msg if isinstance(record.msg, dict) else {"event": str(record.msg)}
        if record.levelno < logging.WARNING or "repeated" in line:
            return True
        text = str(line["event"]).partition("\n")[0]
        name: tuple[object, ...] = (text[:_TEXT], line.get("board"))
        info = line.get("exc_info") or record.exc_info
        error = sys.exc_info()[1] if info is True else info[1] if isinstance(info, tuple) else info
        if isinstance(error, BaseException):
            place: TracebackType | None = error.__traceback__
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            name += type(error), None if place is None else (place.tb_frame.f_code.co_filename, place.tb_lineno)
        now = time.monotonic()
        with self._lock:
            cause = self._causes.get(name)
            if cause is None or (cause.timer is None and now >= cause.reported + self._period):
                # If there are too many causes, forget lines that were not repeated: first the old lines, then all of
                # them.
                for youngest in (now - self._period, now):
                    if len(self._causes) >= _MOST_CAUSES:
                        self._causes = {
                            name: cause
                            for name, cause in self._causes.items()
                            if cause.timer is not None or cause.reported > youngest
                        }
                self._causes[name] = _Cause(text, record.levelno, now)
                return True
            cause.count += 1
            cause.total += 1
            cause.reason = line.get("reason")
            if cause.timer is None:
                self._start(name, cause, cause.reported + self._period - now)
            return False

    def close(self) -> None:
        """Log the counts that were not logged yet."""
        with self._lock:
            causes, self._causes = list(self._causes.values()), {}
        for cause in causes:
            if cause.timer is not None:
                cause.timer.cancel()
            if cause.count:
                _log(cause, cause.text, cause.count)

    def _report(self, name: tuple[object, ...]) -> None:
        """Log how often a line was repeated in the last period, or that the repetition is over."""
        with self._lock:
            cause = self._causes.get(name)
            if cause is None:
                return
            count, cause.count, cause.reported = cause.count, 0, time.monotonic()
            if count:
                self._start(name, cause, self._period)
            else:
                del self._causes[name]
        if count:
            _log(cause, cause.text, count)
        else:
            _log(cause, f"over: {cause.text}", cause.total)

    def _start(self, name: tuple[object, ...], cause: _Cause, seconds: float) -> None:
        cause.timer = threading.Timer(seconds, self._report, [name])
        cause.timer.daemon = True
        cause.timer.start()


def _log(cause: _Cause, text: str, repeated: int) -> None:
    reason = {} if cause.reason is None else {"reason": cause.reason}
    structlog.get_logger().log(cause.level, text, repeated=repeated, **reason)
