"""The load test against a real server: it counts what the server counted, and its exit status tells the result."""

import asyncio
import io
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from rich.console import Console

from live.domain.producer import Scope
from live.errors import SetupError
from live.load import latencies
from live.load.options import Options, Schedule, load_options, parse_rate
from live.load.run import LoadReport, run, show
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.forked import run_live
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

pytestmark = pytest.mark.slow


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
        "rate": "100",
        "duration": "500ms",
        "members": 20,
    }
    return load_options(url=url, **{**values, **changes})


async def load(url: str, **changes: Any) -> LoadReport:
    """Run a small load."""
    return await run(options(url, **changes), lambda *_: None)


def text_of(report: LoadReport) -> str:
    """The report as a terminal shows it."""
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(show(report))
    return console.export_text()


async def loaded_with_a_freeze(store: StoreProcess) -> LoadReport:
    """Run a load during which the store is frozen for 1.5 s."""
    async with run_server(fresh_settings(store.url), [rolling_board()]) as url:
        loading = asyncio.create_task(load(url, rate="100", duration="4s", producers=4, viewers=2))
        await until_counted(url, 50)
        with store.frozen():
            await asyncio.sleep(1.5)
        return await loading


async def until_counted(url: str, likes: int) -> None:
    """Wait until a board has counted some likes."""
    async with httpx.AsyncClient(base_url=url) as client:

        async def counted() -> bool:
            return bool((await client.get("/v1/boards/posts")).json()["total_score"] >= likes)

        await eventually(counted)


def assert_freeze_shows(report: LoadReport) -> None:
    """About a third of the likes were due while the store was frozen, and waited for 0.75 s on average."""
    assert report.acknowledged is not None
    assert report.seen is not None
    assert report.acknowledged.max >= 1400
    assert report.acknowledged.p99 >= 1200
    assert report.acknowledged.p90 >= 800
    assert report.seen.p90 >= 800


def test_rates_and_ramps_are_parsed() -> None:
    """Rates are in likes per second."""
    assert parse_rate("500") == (500, 500)
    assert parse_rate("0..2000.5") == (0, 2000.5)
    assert options("http://h", rate="10..20", duration="2s", batch=3).schedule == Schedule(
        first_rate=10, last_rate=20, seconds=2, batch=3
    )


async def test_a_report_counts_what_the_server_counted(url: str) -> None:
    """The report accounts for every like. Every viewer saw the last like, and the board has the same sum."""
    report = await load(url, sse_viewers=3)
    async with httpx.AsyncClient() as client:
        page = (await client.get(f"{url}/v1/boards/posts?limit=100")).json()
    assert report.accepted == report.sent == page["total_score"]
    assert report.sent + report.unsent == report.requested == 50
    assert (report.rejected, report.failed) == (0, 0)
    assert report.converged == report.viewers + report.sse_viewers == 13
    assert report.frames >= 13 * 2
    assert page["rank_count"] <= 20
    assert report.acknowledged is not None
    assert report.seen is not None
    assert report.seen_sse is not None
    assert report.acknowledged.count == 50
    assert (report.seen.count, report.seen_sse.count) == (report.sent * 10, report.sent * 3)


async def test_processes_and_batches_share_the_load(url: str) -> None:
    """Likes, connections and viewers are divided among the processes. The report counts each of them once."""
    report = await load(url, processes=3, batch=10, rate="600", producers=5, viewers=4, sse_viewers=2)
    async with httpx.AsyncClient() as client:
        page = (await client.get(f"{url}/v1/boards/posts?limit=1")).json()
    assert report.accepted == report.sent == page["total_score"]
    assert report.sent + report.unsent == report.requested == 300
    assert report.converged == 6
    assert report.acknowledged is not None
    assert report.acknowledged.count == 30


async def test_a_ramp_is_reported_in_steps(url: str) -> None:
    """Each step has its requested and its counted rate."""
    report = await load(url, rate="0..200", duration="1s")
    assert report.accepted == report.sent > 0
    assert [step.requested_rate for step in report.steps] == [10, 30, 50, 70, 90, 110, 130, 150, 170, 190]
    assert "requested" in text_of(report)


async def test_a_load_without_viewers_has_no_times_to_seen(url: str) -> None:
    """An objective for these times is missed. An objective for acknowledgements can be met."""
    report = await load(url, viewers=0, slo=["max=1d", "acknowledged:max=1d"])
    assert (report.seen, report.frames) == (None, 0)
    assert [objective.met for objective in report.objectives] == [False, True]


async def test_an_objective_is_met_or_missed(url: str) -> None:
    """The time counts from the moment when a like was due until it is durable or visible."""
    met = await load(url, slo=["max=1d", "acknowledged:max=1d"])
    assert [objective.met for objective in met.objectives] == [True, True]
    missed = await load(url, slo=["acknowledged:p50=0ms", "seen:p50=0ms"])
    assert [objective.met for objective in missed.objectives] == [False, False]
    assert not missed.passed


async def test_a_rate_that_is_not_reached_fails(url: str) -> None:
    """Likes that were due and never sent count with the time that they waited."""
    report = await load(url, rate="200000", duration="500ms", producers=1, viewers=0)
    assert report.reached < 0.95
    assert not report.passed
    assert report.unsent > 0
    assert report.sent + report.unsent == report.requested == 100_000
    assert report.acknowledged is not None
    assert report.acknowledged.p50 > 500, "likes that were never sent do not count with the time that they waited"
    assert "of the requested rate" in text_of(report)


@pytest.mark.fault
async def test_a_frozen_store_shows_with_its_whole_length(own_store: StoreProcess) -> None:
    """Only a few requests wait for the store, but all requests that were due in that time count."""
    report = await loaded_with_a_freeze(own_store)
    assert_freeze_shows(report)


async def test_a_load_that_the_server_refuses_ends_with_its_answer(valkey_url: str) -> None:
    """The server refuses a viewer above its limit, or has no store."""
    settings = fresh_settings(valkey_url, max_viewers=5)
    async with run_server(settings, [rolling_board()]) as address:
        with pytest.raises(SetupError, match="a viewer could not connect to ws://"):
            await load(address, viewers=6)
    async with run_server(fresh_settings("unix:///nowhere/valkey.sock"), None) as address:
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
    """The board or the server does not exist."""
    with pytest.raises(SetupError, match=message):
        await load(**{"url": url, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "ftp://h"},
        {"url": "http://"},
        {"duration": "10"},
        {"duration": "0s"},
        {"slo": ["p99"]},
        {"slo": ["p99=fast"]},
        {"rate": "fast"},
        {"rate": "0"},
        {"rate": "1.."},
        {"rate": "1..99999999999"},
    ],
)
def test_malformed_flags_are_refused(changes: dict[str, Any]) -> None:
    """The command sends nothing."""
    with pytest.raises(SetupError):
        options(**{"url": "http://h", **changes})


def test_without_the_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server itself runs without the extra."""
    monkeypatch.setattr(latencies, "HdrHistogram", None)
    with pytest.raises(SetupError, match=r"pip install 'live-board\[load\]'"):
        options("http://h")


async def test_a_report_has_a_row_for_each_time(url: str) -> None:
    """The report says whether the objective was met."""
    text = text_of(await load(url, sse_viewers=1, slo=["p99=1d"]))
    for expected in (
        "of 50 likes counted",
        "11 of 11 viewers saw the last one",
        "since due, until",
        "sent",
        "acknowledged",
        "seen (WebSocket)",
        "seen (SSE)",
        "objective p99=1d: met",
    ):
        assert expected in text


@pytest.mark.parametrize(("slo", "met"), [("p99=60s", True), ("p99=0.001ms", False)])
async def test_the_exit_status_tells_whether_the_load_test_passed(url: str, slo: str, met: bool) -> None:  # noqa: FBT001
    """The status is 0 if the load test passed, and 1 if not. With `--json`, the command prints one object."""
    words = ["load", "--server", url, "--rate", "50", "--viewers", "20", "--slo", slo, "--duration", "1s", "--json"]
    ended = await asyncio.to_thread(run_live, *words, environment=os.environ)
    report = msgspec.json.decode(ended.stdout, type=LoadReport)
    assert (ended.returncode, ended.stderr) == (0 if report.passed else 1, "")
    assert [(objective.text, objective.met) for objective in report.objectives] == [(slo, met)]
    assert report.accepted == report.sent > 0


@pytest.mark.parametrize("given", ["none", "wrong", "right"])
async def test_producers_send_an_api_key_and_viewers_need_none(valkey_url: str, given: str) -> None:
    """The API key comes from the environment. A wrong API key ends the load with advice that does not show it."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    _, secret = await ProducerStore(client).add("shop", Scope())
    await client.aclose()
    environment = {name: value for name, value in os.environ.items() if name != "LIVE_KEY"}
    if given != "none":
        environment["LIVE_KEY"] = f"shop.{secret if given == 'right' else 'sesame'}"
    async with run_server(settings, [rolling_board()]) as address:
        words = ["load", "--server", address, "--duration", "1s", "--viewers", "5", "--json", "--rate", "50"]
        ended = await asyncio.to_thread(run_live, *words, environment=environment)
    if given == "right":
        report = msgspec.json.decode(ended.stdout, type=LoadReport)
        # A busy machine may not reach the rate.
        assert (ended.returncode, ended.stderr) == (0 if report.passed else 1, "")
        assert (report.failed, report.converged) == (0, 5)
        assert report.accepted == report.sent > 0
        return
    printed = ended.stderr
    assert (ended.returncode, ended.stdout, printed.count("\n")) == (2, "", 1)
    assert "`live keys add" in printed
    assert "sesame" not in printed
