"""Spans of the operations of a server, for OpenTelemetry. Without the extra `otel`, there are no spans."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from live import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context

try:
    from opentelemetry.context import Context
    from opentelemetry.trace import get_current_span, get_tracer
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    _tracer = None
else:
    _tracer = get_tracer("live-board", __version__)
    _traces = TraceContextTextMapPropagator()

_SAMPLED: Final = b"13579bdf"  # the last digits that `traceparent` can have with the flag `sampled`


def trace_of(fields: Iterable[tuple[bytes, bytes]]) -> "Context | None":
    """Find the trace that a request continues. Return None if its client does not sample it, or without `otel`."""
    if _tracer is not None:
        for name, value in fields:
            if name == b"traceparent":
                if value[-1:] not in _SAMPLED:  # most requests end here, in a tenth of the time of a full check
                    return None
                trace = _traces.extract({"traceparent": value.decode("latin-1")})
                return trace if get_current_span(trace).get_span_context().trace_flags.sampled else None
    return None


def record_span(name: str, started: float, trace: "Context | None" = None, **attributes: str | int) -> None:
    """Record a span that began at `started` of `time.perf_counter()`, and ends now. By default, it begins a trace."""
    if _tracer is not None:
        now = time.time_ns()
        begun = now - round((time.perf_counter() - started) * 1e9)
        _tracer.start_span(name, context=trace or Context(), start_time=begun, attributes=attributes).end(now)
