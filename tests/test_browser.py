"""The board page in a real Chromium."""

import asyncio
import random
from pathlib import Path
from typing import Any, get_args

import httpx
import msgspec
import pytest
from msgspec import UNSET, UnsetType
from playwright.async_api import Page

from live.domain.board_file import parse_boards
from live.domain.ranking import Ranks, Record, apply, diff, with_ranks
from live.domain.views import Update
from tests.harness.boards import rolling_board
from tests.harness.browser import AWAY, IN_BROWSER, PATIENCE, board_in_browser, browser, rows, until_first, until_live
from tests.harness.network import free_port
from tests.harness.producer import post
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

pytestmark = IN_BROWSER


async def test_a_like_moves_its_row_up(valkey_url: str) -> None:
    """The row rises, the totals change and a new row appears, without a reload."""
    async with board_in_browser(valkey_url, {"key": "a", "amount": 3}, {"key": "b", "amount": 2}) as (page, producer):
        await until_live(page)
        assert await rows(page) == [("1", "a", "3"), ("2", "b", "2")]
        await page.evaluate("window.stays = document.querySelector('[data-member=b]')")

        await post(producer, {"key": "b", "amount": 1200}, {"key": "c"})
        await until_first(page, "b")

        assert await rows(page) == [("1", "b", "1,202"), ("2", "a", "3"), ("3", "c", "1")]
        assert await page.text_content("#total-score") == "1,206"
        assert await page.text_content("#rank-count") == "3"
        assert await page.evaluate("window.stays === document.querySelector('#records tr')"), (
            "the page made a new row instead of moving the old one"
        )


async def test_rows_move_with_an_animation(valkey_url: str) -> None:
    """A row glides from its old place to its new place, unless the system asks for reduced motion."""
    for motion, moving in (("no-preference", True), ("reduce", False)):
        async with board_in_browser(
            valkey_url, {"key": "a", "amount": 3}, {"key": "b", "amount": 2}, reduced_motion=motion
        ) as (page, producer):
            await until_live(page)
            await page.evaluate("""() => {
                window.moved = false;
                const look = () => {
                    window.moved ||= document.getAnimations().some(
                        (animation) => animation.effect.getKeyframes?.().some(
                            (frame) => frame.transform?.includes("translate")));
                    requestAnimationFrame(look);
                };
                look();
            }""")
            await post(producer, {"key": "b", "amount": 5})
            await until_first(page, "b")
            await page.wait_for_timeout(100)

            assert await page.evaluate("window.moved") is moving


async def test_a_record_without_likes_disappears(valkey_url: str) -> None:
    """A like that is taken back and a slot that expires remove their rows. An empty board says that it is empty."""
    board = rolling_board("2s", "1s")
    async with board_in_browser(valkey_url, {"key": "a"}, {"key": "b"}, board=board) as (page, producer):
        await until_live(page)
        await post(producer, {"key": "a", "amount": -1})
        await page.wait_for_selector("[data-member=a]", state="detached", timeout=PATIENCE)
        await page.wait_for_selector("[data-member=b]", state="detached", timeout=PATIENCE)
        await page.wait_for_selector("#empty", state="visible", timeout=PATIENCE)


async def test_the_first_message_brings_only_changes(valkey_url: str) -> None:
    """The page continues from the rows in the server's HTML, after six requests at most.

    If a reader scrolls before the first message, the rows stay.
    """
    events = [{"key": f"m{number:02}", "amount": 2000 - number} for number in range(60)]
    async with board_in_browser(valkey_url, *events) as (page, producer):
        await until_live(page)
        asked, received = list[str](), list[tuple[int, str]]()
        page.on("request", lambda request: asked.append(request.url))
        page.on(
            "websocket",
            lambda socket: socket.on("framereceived", lambda frame: received.append((len(asked) + 1, str(frame)))),
        )
        await page.reload()
        await until_live(page)
        requests, first = received[0]
        assert first.startswith('{"type":"update",'), first
        assert requests <= 6, asked
        await post(producer, {"key": "m30", "amount": 1000})
        await until_first(page, "m30")
        api = (await producer.get("/v1/boards/posts?limit=50")).json()["records"]
        expected = [(str(one["rank"]), one["key"], f"{one['score']:,}") for one in api]

        async def are_right() -> bool:
            return await rows(page) == expected

        await eventually(are_right)  # rows out of sight are updated later
        await page.add_init_script("window.WebSocket = class { close() {} };")
        await page.reload()
        await page.evaluate("new Promise(done => { scrollTo(0, 500); setTimeout(done, 300); })")
        assert await are_right()


async def test_the_first_message_of_a_board_with_fields_brings_only_changes(valkey_url: str) -> None:
    """The page knows the fields and the packed scores of its rows. Rows with equal scores stay ties if a row joins."""
    fields = '[{field = "levels", max = 99}, {field = "seconds", order = "asc", max = 5000}]'
    boards = parse_boards(
        f'[[board]]\nid = "climb"\noperator = "best"\nwindow = "forever"\nranks = "competition"\nscore = {fields}'
    )
    climb = [{"key": f"m{n:02}", "fields": {"levels": 70 - n // 2, "seconds": 1234}} for n in range(30)]
    async with board_in_browser(valkey_url, *climb, board=list(boards)) as (page, producer):
        received = list[str]()
        page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: received.append(str(frame))))
        await page.reload()
        await until_live(page)
        assert received[0].startswith('{"type":"update",'), received[0]
        await post(producer, {"key": "x", "fields": {"levels": 70, "seconds": 1234}})
        await page.wait_for_selector("#records [data-member=x]", timeout=PATIENCE)
        api = (await producer.get("/v1/boards/climb?limit=50")).json()["records"]
        expected = [[one["rank"], one["key"], *one["fields"].values()] for one in api]
        read = """rows => rows.map(({ dataset, cells }) =>
            [0, 2, 3].map((i) => Number(cells[i].textContent.replace(",", ""))).toSpliced(1, 0, dataset.member))"""

        async def are_right() -> bool:
            return bool(await page.eval_on_selector_all("#records tr", read) == expected)

        await eventually(are_right)


async def test_the_page_works_without_script(valkey_url: str) -> None:
    """The page shows the records, and says that it does not update itself."""
    async with board_in_browser(valkey_url, {"key": "a", "amount": 3}, {"key": "b"}, java_script_enabled=False) as (
        page,
        _,
    ):
        text = await page.inner_text("main")
        assert "JavaScript is off" in text
        assert "1 a 3 2 b 1" in " ".join(text.split())


async def test_names_are_always_text(valkey_url: str) -> None:
    """The server and the script show markup as text. Right-to-left text stays in its cell."""
    nasty = ["</script><img src=x onerror=alert(1)>", "<b>\"&'", "שלום", "{{7*7}}"]
    async with board_in_browser(valkey_url, *({"key": member} for member in nasty[:2])) as (page, producer):
        await until_live(page)
        await post(producer, *({"key": member, "amount": 2} for member in nasty))
        await page.wait_for_function("() => document.querySelectorAll('#records tr').length === 4", timeout=PATIENCE)

        assert {member for _, member, _ in await rows(page)} == set(nasty)
        assert await page.locator("#records img, #records b").count() == 0
        assert await page.locator("#records bdi").count() == 4


async def test_an_unavailable_store_is_shown_as_stale(own_store: StoreProcess) -> None:
    """When the store is back, the page goes on by itself."""
    async with board_in_browser(own_store.url, {"key": "a", "amount": 3}, allowed=AWAY) as (page, producer):
        await until_live(page)
        with own_store.frozen():
            await page.wait_for_selector("#connection[data-state=stale]", timeout=PATIENCE)
            assert "the store is unreachable" in (await page.text_content("#connection") or "")
        await until_live(page)
        await post(producer, {"key": "b", "amount": 5})
        await until_first(page, "b")


async def test_the_page_survives_a_restart_of_the_server(valkey_url: str, tmp_path: Path) -> None:
    """The page shows that the server is gone, reconnects by itself, and is up to date afterwards."""
    settings = fresh_settings(valkey_url, port=free_port())
    server = ServerProcess(settings, tmp_path)
    server.start()
    async with browser() as chromium, httpx.AsyncClient(base_url=server.url) as producer:
        page = await chromium.new_page()
        await page.goto(f"{server.url}/boards/posts")
        await until_live(page)
        server.kill()
        await page.wait_for_selector("#connection[data-state=reconnecting]", timeout=PATIENCE)
        server.start()
        await post(producer, {"key": "b", "amount": 5})
        await until_first(page, "b")
        await until_live(page)
    server.stop()


async def test_the_backoff_has_full_jitter(valkey_url: str) -> None:
    """Pauses are random between zero and a bound. The bound doubles up to a maximum, and `reset` sets it back."""
    async with board_in_browser(valkey_url) as (page, _):
        pauses = await page.evaluate("""async () => {
            const own = document.querySelector('script[type=module]').src;
            const { Backoff } = await import(own.replace('en/board', 'client/backoff'));
            const all = (random) => { const b = new Backoff({ base: 100, cap: 1000, random });
                                      return Array.from({ length: 6 }, () => b.next()); };
            const once = new Backoff({ base: 100, cap: 1000, random: () => 1 });
            once.next(); once.next(); once.reset();
            return { most: all(() => 1), least: all(() => 0), half: all(() => 0.5), reset: once.next() };
        }""")

    assert pauses["most"] == [100, 200, 400, 800, 1000, 1000]
    assert pauses["least"] == [0] * 6
    assert pauses["half"] == [50, 100, 200, 400, 500, 500]
    assert pauses["reset"] == 100


@pytest.mark.parametrize("ranks", get_args(Ranks))
async def test_the_script_and_the_server_apply_messages_alike(valkey_url: str, ranks: Ranks) -> None:
    """After random changes, `applied` in the page and `apply` in the server give the same records.

    The page notices a missing message.

    Equal scores may come in any order, and metadata appears and disappears.
    """
    chance = random.Random(5)
    messages: list[dict[str, Any]] = []
    tops: list[list[Record]] = [[]]
    for offset in range(1, 200):
        scores = {f"k{i}": chance.randint(1, 6) for i in chance.sample(range(14), chance.randint(0, 12))}
        ordered = sorted(scores.items(), key=lambda item: -item[1])
        said: list[msgspec.Raw | UnsetType] = [UNSET, msgspec.Raw(b'{"a":1}'), msgspec.Raw(b'{"a":2}')]
        records = [Record(member, score, 0, metadata=chance.choice(said)) for member, score in ordered][:8]
        top = with_ranks(records, ranks)
        changed, removed = diff(tops[-1], top)
        assert apply(tops[-1], changed, removed, ranks) == top
        update = Update("e", offset - 1, offset, 1, 1, changed, removed)
        messages.append(msgspec.json.decode(msgspec.json.encode(update)))
        tops.append(top)
    async with board_in_browser(valkey_url) as (page, _):
        shown = await page.evaluate(
            """async ([messages, ranks]) => {
            const own = document.querySelector('script[type=module]').src;
            const { applied, Gap } = await import(own.replace('en/board', 'client/state'));
            const nothing = { epoch: "e", offset: 0, rank_count: 0, total_score: 0, records: [], ranks };
            let board = applied(null, { type: "sync", ...nothing });
            const tops = messages.map((message) => (board = applied(board, message)).records);
            let gap = false;
            try { applied(board, messages[3]); } catch (error) { gap = error instanceof Gap; }
            return { tops, gap };
        }""",
            [messages, ranks],
        )

    assert shown["tops"] == msgspec.json.decode(msgspec.json.encode(tops[1:]))
    assert shown["gap"] is True


async def test_many_pages_show_the_same(valkey_url: str) -> None:
    """Three pages of one board finally show the records of the API, row by row."""
    chance = random.Random(9)
    settings = fresh_settings(valkey_url, conflation_interval=0.03)
    async with (
        run_server(settings, [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as producer,
        browser() as chromium,
    ):
        pages = [await chromium.new_page() for _ in range(3)]
        await asyncio.gather(*(page.goto(f"{url}/boards/posts") for page in pages))
        for _ in range(60):
            events = [{"key": f"k{chance.randrange(70)}", "amount": chance.randint(-2, 4)} for _ in range(10)]
            answer = await post(producer, *events)
        await asyncio.gather(*(until_live(page) for page in pages))
        board = (await producer.get("/v1/boards/posts?limit=50")).json()
        right = [(str(r["rank"]), r["key"], f"{r['score']:,}") for r in board["records"]]
        for page in pages:
            await page.wait_for_function(
                "total => document.getElementById('total-score').textContent === total",
                arg=f"{board['total_score']:,}",
                timeout=PATIENCE,
            )

            async def is_right(page: Page = page) -> bool:
                return await rows(page) == right  # rows out of sight are updated once a second

            await eventually(is_right)
        assert answer["accepted"] == 10
