"""The load test against a real server: it counts what the server counted, and its exit status tells the result."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from live.domain.producer import Scope
from live.errors import SetupError
from live.load.run import Options, Report, describe, make_options, run
from live.load.viewers import Viewers
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings


@pytest.fixture
async def url(valkey_url: str) -> AsyncIterator[str]:
    """The address of a server."""
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as address:
        yield address


def options(url: str, **changes: Any) -> Options:
    """A small load."""
    values = {
        "board": "posts",
        "producers": 4,
        "viewers": 10,
        "rate": 100.0,
        "duration": "500ms",
        "members": 20,
        "slo": None,
    }
    return make_options(url=url, **{**values, **changes})


async def load(url: str, **changes: Any) -> Report:
    """Run a small load."""
    return await run(options(url, **changes), lambda *_: None)


def test_a_server_below_a_path_is_watched_there() -> None:
    """Likes are sent there too."""
    assert Viewers("http://h:1/live", "posts")._url == "ws://h:1/live/v1/boards/posts/live"
    assert Viewers("https://h", "posts")._url == "wss://h/v1/boards/posts/live"


async def test_a_report_counts_what_the_server_counted(url: str) -> None:
    """It accounts for every like, every viewer saw the last one, and the board holds the same sum."""
    report = await load(url)
    async with httpx.AsyncClient() as client:
        page = (await client.get(f"{url}/v1/boards/posts?limit=100")).json()
    assert report.accepted == report.sent == page["total_score"] > 0
    assert (report.rejected, report.failed) == (0, 0)
    assert report.converged == report.viewers == 10
    assert report.frames >= 10 * 2
    assert page["rank_count"] <= 20
    assert (report.promise, report.kept) == (None, None)
    assert report.acknowledged is not None
    assert report.received is not None
    assert 0 <= report.received.p50 <= report.received.p90 <= report.received.p99 <= report.received.max


async def test_a_rate_is_not_exceeded(url: str) -> None:
    """The producers share it. Each may send one more at the very end."""
    report = await load(url, rate=40.0, producers=8, duration="1s")
    assert 0 < report.sent <= 40 + 8


async def test_a_load_without_viewers_keeps_no_promise(url: str) -> None:
    """There are no messages to report, so no promise about them is kept."""
    report = await load(url, viewers=0, slo="max=1d")
    assert (report.received, report.frames, report.kept) == (None, 0, False)


async def test_a_promise_is_kept_or_missed(url: str) -> None:
    """By the time from the acknowledgement of a like to the frame that shows it."""
    assert (await load(url, slo="max=1d")).kept is True
    assert (await load(url, slo="max=0ms", rate=400.0)).kept is False


async def test_a_load_that_the_server_refuses_ends_with_its_answer(valkey_url: str) -> None:
    """A viewer too many, and a server without its store."""
    settings = fresh_settings(valkey_url, max_viewers=5)
    async with run_server(settings, [rolling_board()]) as address:
        with pytest.raises(SetupError, match="a viewer could not connect to ws://"):
            await load(address, viewers=6)
    async with run_server(fresh_settings("unix:///nowhere/valkey.sock"), [rolling_board()]) as address:
        with pytest.raises(SetupError, match=r"returned 503: .*store_unavailable"):
            await load(address)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"board": "nope"}, r"returned 404: .*board_not_found"),
        ({"url": "http://127.0.0.1:9"}, r"can't reach http://127\.0\.0\.1:9: .* Is `live serve` running\?"),
    ],
)
async def test_a_load_that_cannot_start_says_why(url: str, changes: dict[str, str], message: str) -> None:
    """There is no such board, or no server."""
    with pytest.raises(SetupError, match=message):
        await load(**{"url": url, **changes})


@pytest.mark.parametrize(
    "changes", [{"url": "ftp://h"}, {"url": "http://"}, {"duration": "10"}, {"slo": "p99"}, {"slo": "p99=fast"}]
)
def test_malformed_flags_are_refused(changes: dict[str, str]) -> None:
    """Before anything is sent."""
    with pytest.raises(SetupError):
        options(**{"url": "http://h", **changes})


async def test_a_report_has_a_line_for_each_result(url: str) -> None:
    """What was counted, what was seen, how long both took, and whether the objective was met."""
    lines = describe(await load(url, slo="p99=1d"))
    assert [line.split(":")[0] for line in lines[2:]] == [
        "sent to acknowledged",
        "acknowledged to seen",
        "objective p99=1d",
    ]
    assert "likes counted in" in lines[0]
    assert "10 of 10 viewers saw the last one" in lines[1]
    assert lines[-1] == "objective p99=1d: met"


@pytest.mark.parametrize(("slo", "status"), [("p99=2s", 0), ("p99=0.001ms", 1)])
async def test_the_exit_status_tells_whether_the_promise_was_kept(url: str, slo: str, status: int) -> None:
    """0 if it was, 1 if it was missed; with --json the command prints one object."""
    command = [sys.executable, "-m", "live", "load", "--to", url, "--rate", "300", "--viewers", "20", "--slo", slo]
    ended = await asyncio.create_subprocess_exec(
        *command, "--duration", "1s", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    )
    output, errors = await ended.communicate()
    assert (ended.returncode, errors) == (status, b"")
    report = msgspec.json.decode(output, type=Report)
    assert (report.promise, report.kept) == (slo, status == 0)
    assert report.accepted == report.sent > 100


@pytest.mark.parametrize("given", ["none", "wrong", "right"])
async def test_producers_send_an_api_key_and_viewers_need_none(valkey_url: str, given: str) -> None:
    """It comes from the environment. With a wrong one the load ends with advice that does not show the secret."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    _, secret = await ProducerStore(client, settings.key_prefix).add("shop", Scope())
    await client.aclose()
    environment = {name: value for name, value in os.environ.items() if name != "LIVE_KEY"}
    if given != "none":
        environment["LIVE_KEY"] = f"shop.{secret if given == 'right' else 'sesame'}"
    async with run_server(settings, [rolling_board()]) as address:
        ended = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "live", "load", "--to", address, "--duration", "1s", "--viewers", "5", "--json",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
        )  # fmt: skip
        output, errors = await ended.communicate()
    if given == "right":
        report = msgspec.json.decode(output, type=Report)
        assert (ended.returncode, errors, report.failed, report.converged) == (0, b"", 0, 5)
        assert report.accepted == report.sent > 0
        return
    told = errors.decode()
    assert (ended.returncode, output, told.count("\n")) == (2, b"", 1)
    assert "`live keys add" in told
    assert "sesame" not in told
