"""Spans of what a server does, for OpenTelemetry. Without the extra `otel`, nothing happens."""

import time

from live import __version__

try:
    from opentelemetry.context import Context
    from opentelemetry.trace import get_tracer
except ImportError:
    _tracer = None
else:
    _tracer = get_tracer("live-board", __version__)


def record_span(name: str, started: float, **attributes: str | int) -> None:
    """Record a span that began at `started` of `time.perf_counter()`, and ends now."""
    if _tracer is not None:
        now = time.time_ns()
        begun = now - round((time.perf_counter() - started) * 1e9)
        # Each is a trace of its own: a batch has the events of many requests.
        _tracer.start_span(name, context=Context(), start_time=begun, attributes=attributes).end(now)
