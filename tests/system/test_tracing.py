"""Spans of a real server, as the SDK of OpenTelemetry exports them."""

import json
from pathlib import Path

import pytest

from live.system import tracing
from tests.harness.server import server
from tests.harness.sse import streaming
from tests.harness.waiting import eventually

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"

pytest.importorskip("opentelemetry.sdk", reason="the SDK of OpenTelemetry is not installed")


async def test_commits_ticks_and_drains_have_spans(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each span has its own trace, and lasts as long as the work took. No span names a member or an actor."""
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - it may be missing
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: PLC0415

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("live-board"))
    async with server(valkey_url, journal="sqlite", data_dir=tmp_path) as client, streaming(client) as stream:
        await stream.until("sync")
        for flags in ("01", "00", "x"):
            headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-{flags}"}
            await client.post("/v1/events", json={"key": "secret", "actor": "secret"}, headers=headers)
        await client.post("/v1/events", json={}, headers={"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"})

        async def spans_of_all() -> bool:
            names = {span.name for span in exporter.get_finished_spans()}
            return names == {"commit", "tick", "drain", "POST /v1/events"}

        await eventually(spans_of_all)
    spans = [json.loads(span.to_json()) for span in exporter.get_finished_spans()]
    commit = next(span for span in spans if span["name"] == "commit")
    assert commit["attributes"] == {"board": "posts", "events": 1}
    posts = [span for span in spans if span["name"] == "POST /v1/events"]
    assert [post["attributes"] for post in posts] == [{"status": 200}, {"status": 200}]
    for post in posts:
        assert (post["context"]["trace_id"], post["parent_id"]) == (f"0x{TRACE}", "0x00f067aa0ba902b7")
        spans.remove(post)
    assert next(span["attributes"]["boards"] for span in spans if span["name"] == "drain") == 1
    assert all(span["start_time"] < span["end_time"] and span["parent_id"] is None for span in spans)
    assert "secret" not in str(spans)


def test_without_the_extra_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra package, tracing does nothing, and no call fails."""
    monkeypatch.setattr(tracing, "_tracer", None)
    tracing.record_span("commit", 0.0, board="posts")
    assert tracing.trace_of([(b"traceparent", f"00-{TRACE}-00f067aa0ba902b7-01".encode())]) is None
