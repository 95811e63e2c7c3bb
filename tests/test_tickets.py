"""Tickets: each is one voter in any number of browsers, and is spent only when its vote counts."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final
from unittest.mock import patch

import httpx
import pytest

from live.auth.tickets import code_of, whole_code_of
from live.domain.board_file import parse_boards
from live.settings import Settings
from live.store.board.requests import SCRIPTS
from tests.harness.admin import add_key
from tests.harness.browser import PATIENCE, browser, in_browser, until_loaded
from tests.harness.commands import run_command
from tests.harness.mutation import must_be_caught, mutated
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.tokens import SECRET, make_token, token_field
from tests.test_browser_axe import AXE, faults
from tests.test_hall import Router

SONGS: Final = ("Aurora", "Borealis", "Cascade")
BOARDS: Final = parse_boards('[[board]]\nid = "plain"\ntypes = ["plain"]')
CHOICES: Final[dict[str, Any]] = {
    "types": ["vote"],
    "window": "forever",
    "like_button": True,
    "votes": {"per_key": 1, "per_actor": 1, "registered": True, "tickets": True},
}
SCRIPT: Final = {"Accept": "application/json"}


class Browser:
    """A browser with its own cookies."""

    def __init__(self, url: str, transport: httpx.AsyncBaseTransport, address: str = "") -> None:
        headers = {"Origin": url, "Sec-Fetch-Site": "same-origin"} | ({"X-Forwarded-For": address} if address else {})
        self.http = httpx.AsyncClient(transport=transport, base_url=url, headers=headers, timeout=600)

    async def open(self, number: int) -> None:
        """Open the QR code of a ticket."""
        answer = await self.http.get(f"/t?code={whole_code_of(SECRET, 'songs', number)}")
        assert (answer.status_code, answer.headers["location"]) == (303, "/boards/songs")

    async def type(self, code: str) -> httpx.Response:
        """Type a code."""
        return await self.http.post("/t", data={"code": code})

    async def vote(self, song: str) -> bool | str:
        """Vote for a song. Return whether the vote was counted now, or the code of the refusal."""
        answer = await self.http.post("/boards/songs/likes", data={"key": song}, headers=SCRIPT, follow_redirects=True)
        found: bool | str = answer.json()["counted" if answer.status_code == 200 else "code"]
        return found


@asynccontextmanager
async def contest(
    store: str, **votes: Any
) -> AsyncIterator[tuple[Settings, httpx.AsyncClient, httpx.AsyncBaseTransport]]:
    """A server with a contest for tickets, an administrator, and the connections of browsers."""
    settings = fresh_settings(store, token_secret=SECRET, like_rate=0, trusted_proxies=("127.0.0.1",))
    key = {"Authorization": f"Bearer {await add_key(settings, 'chief', verbs=('admin', 'post'))}"}
    async with (
        run_server(settings, BOARDS) as url,
        httpx.AsyncClient(base_url=url, headers=key, timeout=60) as admin,
        Router() as transport,
    ):
        choices = {**CHOICES, "votes": {**CHOICES["votes"], **votes}}
        assert (await admin.put("/v1/boards/songs", json=choices)).status_code == 201
        for song in SONGS:
            assert (await admin.put(f"/v1/boards/songs/records/{song}", json={})).status_code == 201
        yield settings, admin, transport


def browsers(admin: httpx.AsyncClient, transport: httpx.AsyncBaseTransport, count: int, address: str = "") -> Any:
    """Make browsers."""
    url = str(admin.base_url).rstrip("/")
    return [Browser(url, transport, address) for _ in range(count)]


async def scores(admin: httpx.AsyncClient) -> Counter[str]:
    """The votes of each song."""
    records = (await admin.get("/v1/boards/songs")).json()["records"]
    return Counter({record["key"]: record["score"] for record in records})


async def change(admin: httpx.AsyncClient, **choices: Any) -> None:
    """Change the contest."""
    answer = await admin.patch("/v1/boards/songs", json=choices)
    assert answer.status_code == 200, answer.text


async def check_tickets(store: str, count: int) -> None:
    """Open each ticket in three browsers, which vote at the same time, repeatedly, also while nothing counts.

    Each ticket counts once, and a refused vote leaves its ticket as it was.
    """
    async with contest(store, opens="2100-01-01T00:00:00Z") as (settings, admin, transport):
        holders = {number: browsers(admin, transport, 3) for number in range(1, count + 1)}
        await asyncio.gather(*(one.open(number) for number, several in holders.items() for one in several))

        async def vote_everywhere(*songs: str, times: int = 1) -> dict[int, list[bool | str]]:
            async def vote(number: int) -> list[bool | str]:
                chosen = [(one, random.choice(songs)) for one in holders[number] * times]
                return list(await asyncio.gather(*(one.vote(song) for one, song in chosen)))

            return dict(zip(holders, await asyncio.gather(*map(vote, holders)), strict=True))

        for code, songs in (("likes_closed", SONGS), ("record_not_found", ("Nobody",))):
            for answers in (await vote_everywhere(*songs)).values():
                assert set(answers) == {code}
        await change(admin, votes={"opens": None}, frozen=True)
        for answers in (await vote_everywhere(*SONGS)).values():
            assert set(answers) == {"likes_closed"}
        assert await used(settings) == []
        await change(admin, frozen=None)
        for number, answers in (await vote_everywhere(*SONGS, times=2)).items():
            assert Counter(answers)[True] == 1, f"ticket {number} counts {answers}"
            assert set(answers) <= {True, False, "votes_used"}
        assert sum((await scores(admin)).values()) == count
        assert await used(settings) == list(holders)


async def used(settings: Settings) -> list[int]:
    """Run `live tickets`."""
    environment = {"LIVE_STORE": settings.store, "LIVE_KEY_PREFIX": settings.key_prefix}
    ended = await asyncio.to_thread(run_command, "tickets", "songs", **environment)
    assert ended.returncode == 0, ended.stderr
    return [int(line) for line in ended.stdout.split()]


async def test_a_ticket_counts_once_in_three_browsers(valkey_url: str) -> None:
    """A dozen tickets."""
    await check_tickets(valkey_url, 12)


@pytest.mark.slow
@pytest.mark.alone
async def test_three_hundred_tickets_count_once(valkey_url: str) -> None:
    """A hall."""
    await check_tickets(valkey_url, 300)


async def check_spending(store: str) -> None:
    """Give both votes of a ticket, with a refused vote between them."""
    async with contest(store, per_actor=2) as (_, admin, transport):
        (browser,) = browsers(admin, transport, 1)
        await browser.open(7)
        assert await browser.vote("Aurora") is True
        assert await browser.vote("Aurora") in {False, "votes_used"}
        assert await browser.vote("Borealis") is True, "a refused vote has spent the ticket"
        assert await browser.vote("Cascade") == "votes_used"
        assert await scores(admin) == {"Aurora": 1, "Borealis": 1}


@contextmanager
def spending_first() -> Iterator[None]:
    """Let the script spend the vote of an actor before it checks the ballot."""
    right = "for _, fields in ipairs({votes.actors, votes.pairs}) do"
    wrong = f"call('HINCRBY', group.voters, votes.actors[1], 1)\n    {right}"
    script = SCRIPTS.add.changed(mutated(SCRIPTS.add.source, {right: wrong}))
    with patch.object(SCRIPTS.add, "source", script.source), patch.object(SCRIPTS.add, "_hash", script._hash):
        yield


async def test_a_refused_vote_spends_nothing(valkey_url: str) -> None:
    """The ballot is checked first."""
    await check_spending(valkey_url)
    with must_be_caught("a ticket is spent before the check"), spending_first():
        await check_spending(valkey_url)


async def test_only_voters_with_a_ticket_count(valkey_url: str) -> None:
    """Votes without a ticket are refused, also those of producers. A viewer token of an application is a ticket too."""
    async with contest(valkey_url) as (_, admin, transport):
        browser, other = browsers(admin, transport, 2)
        assert await browser.vote("Aurora") == "ticket_required"
        event = {"key": "Aurora", "type": "vote", "actor": "ticket 1"}
        for events in ([event], [event, {"key": "Bo", "type": "plain"}]):
            answer = await post(admin, *events)
            assert [one["code"] for one in answer["rejected"]] == ["ticket_missing"]
            assert answer["accepted"] == len(events) - 1
        plain = await admin.post("/v1/events", json={"key": "Aurora", "board": "songs"})
        assert plain.json()["rejected"][0]["code"] in {"ticket_missing", "actor_required"}
        for board, expected in (("songs", True), ("plain", "scope_forbidden")):
            field = dict([token_field(make_token(sub="ann", likes=(board,)))])
            answered = await other.http.post("/boards/songs/likes", data={"key": "Aurora"}, headers=SCRIPT | field)
            assert answered.json().get("counted", answered.json().get("code")) == expected
        assert await scores(admin) == {"Aurora": 1}


async def test_codes_are_typed_within_a_rate(valkey_url: str) -> None:
    """Wrong codes of a network are limited. Right ones cost nothing, and QR codes open in any case."""
    async with contest(valkey_url) as (_, admin, transport):
        (browser,) = browsers(admin, transport, 1, "192.0.2.1")
        code = code_of(SECRET, "songs", 5)
        for _ in range(40):
            answer = await browser.type(f"{code[:4]}-{code[4:].lower()}")
            assert (answer.status_code, answer.headers["location"]) == (303, "/boards/songs")
        answers = [await browser.type("AAAABBBB") for _ in range(40)]
        assert (answers[0].status_code, answers[-1].status_code) == (403, 429)
        assert "There is no ticket with this code." in answers[0].text
        assert int(answers[-1].headers["retry-after"]) > 0
        assert (await browser.type(code)).status_code == 429
        await browser.open(6)
        (elsewhere,) = browsers(admin, transport, 1, "192.0.2.2")
        assert (await elsewhere.type(code)).status_code == 303
        foreign = await elsewhere.http.post("/t", data={"code": code}, headers={"Sec-Fetch-Site": "cross-site"})
        assert foreign.status_code == 403


async def test_a_server_without_a_secret_opens_no_tickets(valkey_url: str) -> None:
    """The form says which setting its operator needs. The page of the board shows no command that would be refused."""
    boards = parse_boards('[[board]]\nid = "cup"\nwindow = "forever"\nvotes = {per_key = 1, tickets = true}')
    async with (
        run_server(fresh_settings(valkey_url, open=True), boards) as url,
        httpx.AsyncClient(base_url=url) as visitor,
    ):
        answer = await visitor.get("/t", params={"code": code_of(SECRET, "cup", 1)})
        assert (answer.status_code, "has not set LIVE_TOKEN_SECRET" in answer.text) == (403, True)
        assert "curl" not in (await visitor.get("/boards/cup")).text


async def test_a_page_says_that_voting_needs_a_ticket(valkey_url: str) -> None:
    """Its place has a link to `/t`. With a ticket, there are buttons instead, and no cache shares the page."""
    async with contest(valkey_url) as (_, admin, transport):
        without, holder = browsers(admin, transport, 2)
        await holder.open(3)
        for _ in range(2):
            for path in ("/boards/songs", "/boards/songs/records/Aurora"):
                page, own = await without.http.get(path), await holder.http.get(path)
                assert ("Voting needs a ticket." in page.text, 'href="/t"' in page.text) == (True, True)
                assert "<button form=" not in page.text
                assert ("Voting needs a ticket." in own.text, "<button form=" in own.text) == (False, True)
        form = await without.http.post("/boards/songs/likes", data={"key": "Aurora"})
        assert (form.status_code, "Voting needs a ticket" in form.text) == (403, True)


@in_browser
async def test_a_ticket_is_opened_and_votes(valkey_url: str) -> None:
    """With and without script, by typing its code. The form is accessible, also after a wrong code."""
    async with contest(valkey_url) as (_, admin, _transport), browser() as chromium:
        for number, script in ((1, True), (2, False)):
            context = await chromium.new_context(java_script_enabled=script, locale="en", bypass_csp=True)
            page = await context.new_page()
            await page.goto(f"{admin.base_url}/boards/songs")
            await page.get_by_role("link", name="Enter yours").click()
            if script and AXE.exists():
                await page.get_by_label("The eight letters of your ticket").fill("wrong")
                await page.get_by_role("button", name="Open").click()
                await page.get_by_text("There is no ticket with this code.").wait_for(timeout=PATIENCE)
                await page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
                assert await faults(page) == []
            await page.get_by_label("The eight letters of your ticket").fill(code_of(SECRET, "songs", number).lower())
            await page.get_by_role("button", name="Open").click()
            await page.wait_for_url("**/boards/songs")
            if script:
                await until_loaded(page)
            await page.get_by_role("button", name="Vote for Aurora").first.click()
            if script:
                await page.get_by_role("button", name="Undo your vote for Aurora").first.wait_for(timeout=PATIENCE)
            else:
                await page.wait_for_url("**/boards/songs#liked")
        assert await scores(admin) == {"Aurora": 2}
