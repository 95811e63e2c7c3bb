"""Repeated log lines are counted: the first line is logged, then one line per period, and one line at the end."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from structlog.testing import capture_logs

from live.logs import PERIOD, Repeats
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

QUICK = 0.2


class Lines(logging.Handler):
    """A handler that keeps log lines."""

    def __init__(self, period: float) -> None:
        super().__init__()
        self.logged: list[dict[str, Any]] = []
        self.repeats = Repeats(period)
        self.addFilter(self.repeats)

    def emit(self, record: logging.LogRecord) -> None:
        self.logged.append(record.msg if isinstance(record.msg, dict) else {"event": record.getMessage()})

    def events(self, *fields: str) -> list[Any]:
        """The text of each line. With `fields`, a tuple of the text and the values of these fields."""
        return [
            tuple(line.get(field) for field in ("event", *fields)) if fields else line["event"] for line in self.logged
        ]


@pytest.fixture
def lines(request: pytest.FixtureRequest) -> Iterator[Lines]:
    """Yield a handler that keeps lines. Its period is `QUICK`, or the parameter of the test."""
    handler = Lines(getattr(request, "param", QUICK))
    before = structlog.get_config()
    structlog.configure(
        processors=[structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    handler.repeats.close()
    structlog.configure(**before)


async def over(lines: Lines, text: str) -> None:
    """Wait until the log has the line `over: {text}`, which ends a series of repeated lines."""

    async def is_logged() -> bool:
        return f"over: {text}" in lines.events()

    await eventually(is_logged)


@pytest.mark.slow
@pytest.mark.parametrize("lines", [2.0], indirect=True)
async def test_a_repeated_line_is_counted(lines: Lines) -> None:
    """A thousand lines become three: the first line, a line with the count, and a line at the end."""
    log = structlog.get_logger()
    for number in range(1000):
        log.warning("the store is unavailable", reason=f"late by {number}")
    assert lines.logged == [{"event": "the store is unavailable", "reason": "late by 0"}]
    await over(lines, "the store is unavailable")
    assert lines.events("repeated") == [
        ("the store is unavailable", None), ("the store is unavailable", 999), ("over: the store is unavailable", 999),
    ]  # fmt: skip


@pytest.mark.slow
async def test_a_line_that_continues_is_logged_once_per_period(lines: Lines) -> None:
    """The counts of the periods add up to the count at the end."""
    log = structlog.get_logger()
    loop = asyncio.get_running_loop()
    end, said = loop.time() + 5 * QUICK, 0
    while loop.time() < end:
        log.error("again")
        said += 1
        await asyncio.sleep(0.001)
    await over(lines, "again")
    counts = [line["repeated"] for line in lines.logged if "repeated" in line]
    assert sum(counts[:-1]) == counts[-1] == said - 1
    assert 2 <= len(counts) <= 8


@pytest.mark.parametrize("lines", [PERIOD], indirect=True)
async def test_different_causes_are_different_lines(lines: Lines) -> None:
    """Causes differ by text, by board, or by the origin of an exception. Lines of libraries are counted too."""
    log = structlog.get_logger()

    def fail(number: int) -> None:
        if number:
            raise ValueError(number)
        raise ValueError

    for _ in range(3):
        for board in ("a", "b"):
            log.warning("lost", board=board)
        for number in (0, 1):
            try:
                fail(number)
            except ValueError as error:
                log.error("failed", exc_info=error)  # noqa: TRY400 - as in the code
        logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: %s", object())
        log.info("not a warning")
    assert lines.events("board")[:2] == [("lost", "a"), ("lost", "b")]
    assert lines.events().count("failed") == 2
    assert len([event for event in lines.events() if event.startswith("Task")]) == 1
    lines.repeats.close()
    assert sorted(line["repeated"] for line in lines.logged if "repeated" in line) == [2] * 5


@pytest.mark.parametrize("lines", [PERIOD], indirect=True)
async def test_the_number_of_causes_is_limited(lines: Lines) -> None:
    """A flood of different texts does not fill the memory."""
    for number in range(5000):
        structlog.get_logger().warning(f"text {number}")
    assert len(lines.logged) == 5000
    assert len(lines.repeats._causes) <= 1000


def test_counts_are_logged_at_the_end() -> None:
    """A process that ends logs how often its last lines occurred."""
    program = (
        "import structlog; from live.logs import configure_logs; configure_logs('info')\n"
        "for _ in range(50): structlog.get_logger().warning('again')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    logged = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["event"], line["level"], line.get("repeated")) for line in logged] == [
        ("again", "warning", None),
        ("again", "warning", 49),
    ]


def test_a_repeated_line_keeps_its_last_reason() -> None:
    """The last line has the count and the newest reason, which says what is wrong now."""
    repeats = Repeats()
    with capture_logs() as logged:
        for reason in ("first", "second", "third"):
            line = {"event": "the store is unavailable", "reason": reason}
            repeats.filter(logging.makeLogRecord({"msg": line, "levelno": logging.WARNING}))
        repeats.close()
    assert [(line["repeated"], line["reason"]) for line in logged] == [(2, "third")]


def test_commands_log_to_standard_error() -> None:
    """Standard output has the result only, so that `--json` can be parsed."""
    program = (
        "import structlog; from live.cli import main\n"
        "def app(): structlog.get_logger().warning('look'); print('{}')\n"
        "main.app = app; main.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "{}\n"
    assert json.loads(done.stderr)["event"] == "look"


@pytest.mark.slow
async def test_a_stall_of_the_store_is_a_few_lines(own_store: StoreProcess, tmp_path: Path) -> None:
    """Hundreds of refused requests log a line per cause, a line at its end, and a line when the store is back.

    Requests whose origins are refused are one cause too. Its line names the setting that allows an origin.
    """
    settings = fresh_settings(own_store.url, store_timeout=0.3, write_deadline=0.3)
    server = ServerProcess(settings, tmp_path)
    server.start()
    refused = 0

    async def ask(client: aiohttp.ClientSession) -> None:
        nonlocal refused
        while refused < 500:
            async with client.post("/v1/events", json={"key": "a"}) as answer:
                refused += answer.status == 503
            async with client.get("/v1/boards/posts") as answer:
                refused += answer.status == 503

    try:
        async with aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(limit=200)) as client:
            async with client.post("/v1/events", json={"key": "a"}) as answer:
                assert answer.status == 200
            for page in range(50):
                origin = {"Origin": f"https://page{page}.example"}
                async with client.get("/v1/boards/posts/stream", headers=origin) as answer:
                    assert answer.status == 403
            with own_store.frozen():
                await asyncio.gather(*(ask(client) for _ in range(100)))

        async def quiet() -> bool:
            return "over: the store is unavailable" in server.log()

        await eventually(quiet, 3 * PERIOD)
        logged = [line for line in server.log().splitlines() if line.startswith("{")]
        assert len(logged) < 20, logged
        counted = [line for line in map(json.loads, logged) if line["event"] == "over: the store is unavailable"]
        assert counted[0]["repeated"] >= refused / 2
        (said,) = [line for line in logged if '"the store is back"' in line]
        assert logged.index(said) < next(i for i, line in enumerate(logged) if '"over: ' in line)
        (first,) = [line for line in logged if "LIVE_ALLOWED_ORIGINS" in line and '"repeated"' not in line]
        assert json.loads(first)["origin"] == "https://page0.example"
    finally:
        server.stop()
