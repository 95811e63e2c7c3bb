"""The like button: what a visitor of the pages can do, and what nobody can."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from live.domain.board_file import parse_boards
from tests.harness.producer import post
from tests.harness.server import run_server, server
from tests.harness.settings import fresh_settings

BOARDS = parse_boards("""
[[board]]
id = "liked"
like_button = true
[[board]]
id = "votes"
types = ["vote"]
window = "forever"
votes = { per_key = 1 }
like_button = true
[[board]]
id = "plain"
""")
SONGS = """
[[board]]
id = "songs"
window = "forever"
votes = { per_key = 1, per_actor = 1 }
like_button = true
"""
SCRIPT = {"Accept": "application/json"}


class Visitor:
    """A browser that has loaded the page of a board."""

    def __init__(self, url: str, address: str = "", host: str = "") -> None:
        self.url = url
        self.headers = {"Origin": f"http://{host}" if host else url, "Sec-Fetch-Site": "same-origin"}
        self.headers |= {"Host": host} if host else {}
        self.headers |= {"X-Forwarded-For": address} if address else {}
        self.cookies = httpx.Cookies()

    async def send(self, path: str, *, follow: bool = False, **request: Any) -> httpx.Response:
        """Send a request with the browser's cookies, and keep the cookies of the answer."""
        headers = self.headers | request.pop("headers", {})
        async with httpx.AsyncClient(
            base_url=self.url, headers=headers, cookies=self.cookies, follow_redirects=follow
        ) as http:
            answer = await http.post(path, **request)
            self.cookies = http.cookies
        return answer

    async def like(self, member: str, board: str = "liked", **headers: str) -> httpx.Response:
        """Like a member as the script does; follows the redirect that brings the cookie."""
        return await self.send(f"/boards/{board}/likes", data={"key": member}, headers=SCRIPT | headers, follow=True)


@pytest.fixture
async def url(valkey_url: str) -> AsyncIterator[str]:
    """A server with boards that take likes, and a board that takes no likes. Ada is on all boards, and Bo on two."""
    settings = fresh_settings(valkey_url, like_rate=10_000, open=True, trusted_proxies=("127.0.0.1",))
    async with run_server(settings, BOARDS) as url, httpx.AsyncClient(base_url=url) as producer:
        for board in ("liked", "plain"):
            await post(
                producer, {"key": "Ada", "amount": 10, "board": board}, {"key": "Bo", "amount": 5, "board": board}
            )
        await post(producer, {"key": "Ada", "board": "votes", "actor": "x"})
        yield url


async def score(url: str, member: str = "Ada", board: str = "liked") -> int:
    """The score of a member."""
    async with httpx.AsyncClient(base_url=url) as reader:
        found: int = (await reader.get(f"/v1/boards/{board}/records/{member}")).json()["score"]
        return found


def code(response: httpx.Response) -> tuple[int, str]:
    """The status and the problem."""
    return response.status_code, response.json()["code"]


async def test_a_visitor_likes_each_member_once(url: str) -> None:
    """The first request only brings the cookie. The like counts with the cookie, and a second like does not."""
    visitor = Visitor(url)
    first = await visitor.send("/boards/liked/likes", data={"key": "Ada"}, headers=SCRIPT)
    assert (first.status_code, first.headers["location"]) == (307, "/boards/liked/likes?visitor=new")
    cookie = r"^live-visitor-[0-9a-f]{8}\.[0-9a-f]{8}=\S+; HttpOnly; Max-Age=\d+; Path=/; SameSite=strict$"
    assert re.search(cookie, first.headers["set-cookie"])
    assert await score(url) == 10
    liked = await visitor.like("Ada")
    assert liked.json() == {"board": "liked", "key": "Ada", "counted": True}
    assert liked.headers["cache-control"] == "no-store"
    assert (await visitor.like("Ada")).json()["counted"] is False
    assert (await visitor.like("Bo")).json()["counted"] is True
    assert (await score(url), await score(url, "Bo")) == (11, 6)
    assert (await Visitor(url).like("Ada")).json()["counted"] is True
    assert await score(url) == 12


async def test_a_cookie_with_an_invalid_name_is_ignored(url: str) -> None:
    """Another page of the host may set a cookie whose name begins like the cookies of this server.

    The like still counts.
    """
    visitor = Visitor(url)
    await visitor.like("Bo")
    ((name, value),) = visitor.cookies.items()
    header = f"{name}={value}; {name.partition('.')[0]}.(x)=1"
    async with httpx.AsyncClient(base_url=url, headers={**SCRIPT, "Cookie": header, "Origin": url}) as client:
        answer = await client.post("/boards/liked/likes", data={"key": "Ada"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["counted"] is True
    assert "set-cookie" not in answer.headers


async def test_a_like_can_be_a_vote(url: str) -> None:
    """The visitor is the actor of the vote, so a second like does not count."""
    visitor = Visitor(url)
    assert [(await visitor.like("Ada", "votes")).json()["counted"] for _ in range(2)] == [True, False]
    assert await score(url, board="votes") == 2


async def test_likes_at_the_same_time_count_once(url: str) -> None:
    """Twenty likes of one visitor at the same time count once."""
    visitor = Visitor(url)
    await visitor.like("Bo")
    answers = await asyncio.gather(*(visitor.like("Ada") for _ in range(20)))
    assert sorted(answer.json()["counted"] for answer in answers) == [False] * 19 + [True]
    assert await score(url) == 11


async def likes_on_two_ports(one: str, other: str) -> None:
    """Like on two servers of one host in turn: browsers send their cookies to all ports."""
    here, there = Visitor(one), Visitor(other)
    for counted in (True, False, False):
        assert (await here.like("Ada")).json()["counted"] is counted
        there.cookies = here.cookies
        assert (await there.like("Ada")).json()["counted"] is counted
        here.cookies = there.cookies
    assert len(here.cookies) == 2


async def test_servers_on_two_ports_have_their_own_cookies(url: str, valkey_url: str) -> None:
    """Neither server replaces or deletes the other's cookie."""
    async with server(valkey_url, *BOARDS) as client:
        await post(client, {"key": "Ada", "board": "liked"})
        await likes_on_two_ports(url, str(client.base_url).rstrip("/"))


async def test_a_form_returns_to_its_page(url: str) -> None:
    """Without script, the form returns to the board or the record's page, in the language of the page."""
    visitor = Visitor(url)
    done = await visitor.send("/boards/liked/likes?lang=zh-Hans", data={"key": "Ada"}, follow=True)
    assert [step.status_code for step in done.history] == [307, 303]
    assert done.url.raw_path == b"/boards/liked?lang=zh-Hans"
    again = await visitor.send("/boards/liked/likes", data={"key": "Ada", "page": "record"})
    assert (again.status_code, again.headers["location"]) == (303, "/boards/liked/records/Ada#liked")
    refused = await visitor.send("/boards/plain/likes", data={"key": "Ada"})
    assert refused.status_code == 403
    assert "The board has no like button" in refused.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"}, {"Origin": "http://sub.127.0.0.1"},
    ],
)  # fmt: skip
async def test_other_pages_can_not_like(url: str, headers: dict[str, str]) -> None:
    """The cookie of the visitor does not help. The origin is checked before anything else."""
    visitor = Visitor(url)
    await visitor.like("Bo")
    assert code(await visitor.like("Ada", **headers)) == (403, "origin_forbidden")
    assert await score(url) == 10


async def test_programs_can_not_like(url: str) -> None:
    """A request without an origin comes from no page, so its like is refused."""
    async with httpx.AsyncClient(base_url=url, headers=SCRIPT) as program:
        assert code(await program.post("/boards/liked/likes", data={"key": "Ada"})) == (403, "origin_forbidden")


async def test_a_browser_without_cookies_gets_a_problem(url: str) -> None:
    """The browser does not end in a redirect loop, and nothing counts."""
    visitor = Visitor(url)
    answer = await visitor.send("/boards/liked/likes?visitor=new", data={"key": "Ada"}, headers=SCRIPT)
    assert code(answer) == (403, "cookie_required")
    assert await score(url) == 10


@pytest.mark.parametrize("change", ["name", "signature", "short", "long", "empty", "words"])
async def test_a_forged_cookie_is_replaced(url: str, change: str) -> None:
    """A forged cookie stands for no visitor, so no like counts for it. The browser receives a new cookie."""
    visitor = Visitor(url)
    await visitor.like("Bo")
    ((cookie, value),) = visitor.cookies.items()
    name, _, signature = value.partition(".")
    forged = {
        "name": f"{'B' if name[0] == 'A' else 'A'}{name[1:]}.{signature}",
        "signature": f"{name}.{'0' * len(signature)}", "short": name, "long": f"{name}.{signature}0", "empty": "",
        "words": "é" * 55,
    }[change]  # fmt: skip
    async with httpx.AsyncClient(base_url=url, headers=visitor.headers) as forger:
        headers = [(b"cookie", f"{cookie}={forged}".encode())]
        answer = await forger.post("/boards/liked/likes", data={"key": "Ada"}, headers=headers)
    assert answer.status_code == 307
    assert await score(url) == 10


@pytest.mark.parametrize("member", ["Nobody", "", "\u202e", "a" * 1025, "."])
async def test_only_members_on_the_board_can_be_liked(url: str, member: str) -> None:
    """A visitor can't add members."""
    visitor = Visitor(url)
    answer = await visitor.like(member)
    assert code(answer) in {(404, "record_not_found"), (400, "malformed_body")}
    async with httpx.AsyncClient(base_url=url) as reader:
        assert (await reader.get("/v1/boards/liked")).json()["rank_count"] == 2


@pytest.mark.parametrize(
    ("content", "media_type", "expected"),
    [
        (b"key=Ada", "text/plain", (415, "unsupported_media_type")),
        (b'{"key": "Ada"}', "application/json", (415, "unsupported_media_type")),
        (b"key=" + b"a" * 7000, "application/x-www-form-urlencoded", (413, "body_too_large")),
        (b"key=%FF", "application/x-www-form-urlencoded", (400, "malformed_body")),
        (b"key=\xff", "application/x-www-form-urlencoded", (400, "malformed_body")),
        (b"a=1&" * 9, "application/x-www-form-urlencoded", (400, "malformed_body")),
    ],
)
async def test_other_bodies_are_refused(url: str, content: bytes, media_type: str, expected: Any) -> None:
    """Pages of other origins can send some of these bodies without a preflight request."""
    visitor = Visitor(url)
    await visitor.like("Bo")
    headers = SCRIPT | {"Content-Type": media_type}
    assert code(await visitor.send("/boards/liked/likes", content=content, headers=headers)) == expected


async def test_boards_without_a_like_button_take_no_likes(url: str) -> None:
    """By default, a board has no like button. Its page shows no like button. A like is refused, and sets no cookie."""
    answer = await Visitor(url).like("Ada", "plain")
    assert code(answer) == (403, "likes_not_allowed")
    assert "set-cookie" not in answer.headers
    assert code(await Visitor(url).like("Ada", "none")) == (404, "board_not_found")
    async with httpx.AsyncClient(base_url=url) as reader:
        plain, liked = [await reader.get(f"/boards/{board}") for board in ("plain", "liked")]
        wall, frame = [await reader.get(path) for path in ("/boards/liked?display=wall", "/embed/liked")]
        both = await reader.get("/boards/liked,plain")
        record = await reader.get("/boards/liked/records/Ada")
    assert [page.text.count('class="like"') for page in (plain, liked, wall, frame, both, record)] == [0, 3, 0, 0, 3, 1]
    policies = [page.headers.get_list("content-security-policy") for page in (plain, liked, wall, frame, both, record)]
    assert ["form-action 'self'" in policy for (policy,) in policies] == [True, True, True, False, True, True]
    assert not any("set-cookie" in page.headers for page in (plain, liked, record))


async def test_a_flood_is_limited_by_address(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new cookie does not help against the limit, and costs nothing of it. Other addresses are not affected."""
    monkeypatch.setattr("live.auth.visitors.LIKE_BURST", 6)
    settings: dict[str, Any] = {"like_rate": 1, "open": True, "trusted_proxies": ("127.0.0.1",)}
    async with server(valkey_url, *BOARDS, **settings) as producer:
        await post(producer, {"key": "Ada"})
        url = str(producer.base_url).rstrip("/")
        answers = [await Visitor(url, "192.0.2.1").like("Ada") for _ in range(12)]
        assert [answer.status_code for answer in answers[:6]] == [200] * 6
        assert code(answers[-1]) == (429, "rate_exceeded")
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert (await Visitor(url, "192.0.2.2").like("Ada")).status_code == 200
        assert (await post(producer, {"key": "Ada"}))["accepted"] == 1


async def test_cookies_are_bounded_like_reads(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that asks for many cookies is refused. A visitor who has a cookie still votes."""
    monkeypatch.setattr("live.auth.rates.READ_BURST", 6)
    settings: dict[str, Any] = {"read_rate": 1, "open": True, "trusted_proxies": ("127.0.0.1",)}
    async with server(valkey_url, *BOARDS, **settings) as producer:
        await post(producer, {"key": "Ada"})
        url = str(producer.base_url).rstrip("/")
        visitor = Visitor(url, "192.0.2.1")
        assert (await visitor.like("Ada")).status_code == 200
        answers = [await Visitor(url, "192.0.2.1").like("Ada") for _ in range(12)]
        assert [answer.status_code for answer in answers[:5]] == [200] * 5
        assert code(answers[-1]) == (429, "rate_exceeded")
        assert (await visitor.like("Ada")).json()["counted"] is False


WAITING = re.compile(r'http-equiv="refresh" content="(\d+);url=([^"]+)"')


async def test_a_page_without_script_sends_a_refused_like_again(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of the refusal reloads an address that counts the like once, and only for this visitor and member."""
    monkeypatch.setattr("live.auth.visitors.LIKE_BURST", 1)
    async with server(valkey_url, *BOARDS, like_rate=1, open=True) as producer:
        await post(producer, {"key": "Ada"}, {"key": "Bo"})
        visitor, other = Visitor(url := str(producer.base_url).rstrip("/")), Visitor(url)
        await other.like("Bo")
        found = None
        while found is None:
            answer = await visitor.send(
                "/boards/liked/likes?lang=en", data={"key": "Ada", "page": "record"}, follow=True
            )
            found = WAITING.search(answer.text)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, found[1])
        assert f"Many are voting. Yours is sent again in {found[1]} s" in answer.text
        assert answer.headers["cache-control"] == "no-store"
        again = found[2].replace("&amp;", "&")
        held = await score(url)
        signature = re.sub(r"signature=\w+", "signature=0", again)
        expired = re.sub(r"until=\d+", "until=1", again)
        for browser, address in (
            (other, again), (Visitor(url), again), (visitor, again.replace("key=Ada", "key=Bo")),
            (visitor, signature), (visitor, expired), (visitor, "/boards/liked/likes?key=Ada"),
        ):  # fmt: skip
            refused = await get(browser, address)
            assert (refused.status_code, "#liked" in refused.headers["location"]) == (303, False), address
        assert await score(url) == held
        counted = None
        while counted is None or counted.status_code == 429:
            counted = await get(visitor, again)
        assert (counted.status_code, counted.headers["location"]) == (303, "/boards/liked/records/Ada?lang=en#liked")
        assert await score(url) == held + 1
        while (await get(visitor, again)).status_code == 429:
            pass
        assert await score(url) == held + 1, "the address counts twice"


async def get(visitor: Visitor, path: str) -> httpx.Response:
    """Open an address as a browser does that reloads a page."""
    headers = {"Sec-Fetch-Site": "same-origin"}
    async with httpx.AsyncClient(base_url=visitor.url, headers=headers, cookies=visitor.cookies) as http:
        return await http.get(path)


async def test_frozen_closed_and_hidden_take_no_likes(valkey_url: str) -> None:
    """A like that was counted before stays counted, and sending it again gets the usual answer."""
    choices = {"window": "forever", "votes": {"per_key": 1}, "like_button": True, "types": ["vote"]}
    async with server(valkey_url, anonymous_admin=True) as client:
        url = str(client.base_url).rstrip("/")
        fan, late = Visitor(url), Visitor(url)
        assert (await client.put("/v1/boards/contest", json=choices)).status_code == 201
        await post(client, *({"key": member, "board": "contest", "actor": "x"} for member in ("Ada", "Bo")))
        assert (await fan.like("Ada", "contest")).json()["counted"] is True
        assert (await client.patch("/v1/boards/contest/records/Bo", json={"hidden": True})).status_code == 204
        assert code(await fan.like("Bo", "contest")) == (404, "record_not_found")
        for change in ({"frozen": True}, {"frozen": None, "votes": {"closes": "2026-01-01T00:00:00Z"}},
                       {"votes": {"closes": None, "opens": "2100-01-01T00:00:00Z"}}):  # fmt: skip
            assert (await client.patch("/v1/boards/contest", json=change)).status_code == 200
            assert code(await late.like("Ada", "contest")) == (409, "likes_closed")
            assert (await fan.like("Ada", "contest")).json()["counted"] is False
            assert "</button></td>" not in (await client.get("/boards/contest")).text
        assert (await client.patch("/v1/boards/contest", json={"votes": {"opens": None}})).status_code == 200
        assert (await late.like("Ada", "contest")).json()["counted"] is True
        changed = await client.patch("/v1/boards/contest", json={"like_button": None})
        assert changed.json()["like_button"] is False
        assert code(await late.like("Ada", "contest")) == (403, "likes_not_allowed")
        assert await score(url, board="contest") == 3


async def test_a_visitor_has_as_many_votes_as_anyone(valkey_url: str) -> None:
    """Likes beyond the limit of votes for each actor are refused."""
    async with server(valkey_url, *parse_boards(SONGS)) as client:
        await post(client, {"key": "Ada", "actor": "x"}, {"key": "Bo", "actor": "y"})
        visitor = Visitor(str(client.base_url).rstrip("/"))
        assert [(await visitor.like("Ada", "songs")).json()["counted"] for _ in range(2)] == [True, False]
        assert code(await visitor.like("Bo", "songs")) == (409, "votes_used")


async def test_every_process_knows_every_visitor(valkey_url: str) -> None:
    """The processes of one server share the secret that signs cookies, and use one name for cookies.

    Another server has its own secret and name.
    """
    settings = fresh_settings(valkey_url)
    async with (
        run_server(settings, BOARDS) as one,
        run_server(settings, BOARDS) as other,
        server(valkey_url) as strange,
    ):
        await post(strange, {"key": "Ada"})
        async with httpx.AsyncClient(base_url=one) as producer:
            await post(producer, {"key": "Ada", "board": "liked"})
        visitor, again = [Visitor(url, host="board.localhost") for url in (one, other)]
        await visitor.like("Ada")
        again.cookies = visitor.cookies
        assert (await again.like("Ada")).json()["counted"] is False
        assert await score(other) == 2


async def test_the_cookie_is_bound_to_a_secure_host(valkey_url: str) -> None:
    """Behind a proxy with TLS, no other host can set the cookie, and browsers never send it in the clear."""
    async with server(valkey_url, *BOARDS, trusted_proxies=("127.0.0.1",), root_path="/live") as client:
        url = str(client.base_url).rstrip("/")
        headers = {"Origin": url, "X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.1"}
        answer = await client.post("/live/boards/liked/likes", data={"key": "Ada"}, headers=headers)
        assert answer.headers["location"] == "/live/boards/liked/likes?visitor=new"
        name, _, rest = answer.headers["set-cookie"].partition("=")
        assert re.fullmatch(r"__Host-live-visitor-[0-9a-f]{8}\.[0-9a-f]{8}", name)
        assert {"HttpOnly", "Path=/", "SameSite=strict", "Secure"} <= set(rest.split("; "))


@pytest.mark.parametrize("is_script", [True, False])
async def test_a_visitor_changes_a_vote_and_takes_it_back(valkey_url: str, *, is_script: bool) -> None:
    """A form without script does the same as the script. A repeated request changes nothing, and says so."""
    async with server(valkey_url, *parse_boards(SONGS)) as client:
        await post(client, {"key": "Ada", "actor": "x"}, {"key": "Bo", "actor": "y"})
        visitor = Visitor(str(client.base_url).rstrip("/"))

        async def send(fields: dict[str, str], *, counted: bool) -> None:
            for is_again in (False, True):
                headers = SCRIPT if is_script else {}
                answer = await visitor.send("/boards/songs/likes", data=fields, headers=headers)
                if answer.status_code == 307:  # it brings the cookie
                    answer = await visitor.send(answer.headers["location"], data=fields, headers=headers)
                if is_script:
                    assert answer.json()["counted"] is (counted and not is_again), answer.text
                else:
                    assert answer.status_code == 303, answer.text

        async def scores() -> dict[str, int]:
            records = (await client.get("/v1/boards/songs")).json()["records"]
            return {record["key"]: record["score"] for record in records}

        await send({"key": "Ada"}, counted=True)
        await send({"key": "Bo", "replaces": "Ada"}, counted=True)
        assert await scores() == {"Ada": 1, "Bo": 2}
        await send({"undo": "Bo", "replaces": "Bo"}, counted=True)
        assert await scores() == {"Ada": 1, "Bo": 1}
        await send({"key": "Bo"}, counted=True)  # the visitor may vote again for a member
        assert await scores() == {"Ada": 1, "Bo": 2}
        refused = await visitor.send("/boards/songs/likes", data={"key": "Ada", "replaces": "Cy"}, headers=SCRIPT)
        assert code(refused) == (409, "vote_unknown")
        assert await scores() == {"Ada": 1, "Bo": 2}


async def test_final_votes_stay(valkey_url: str) -> None:
    """A visitor can't take back a vote on a board whose votes are final. A like can't be taken back at all."""
    boards = parse_boards(SONGS.replace("per_actor = 1", "per_actor = 1, changes = false") + '[[board]]\nid = "posts"')
    async with server(valkey_url, *boards, *BOARDS) as client:
        await post(
            client,
            *({"key": member, "board": board, "actor": member} for member in "ab" for board in ("songs", "liked")),
        )
        visitor = Visitor(str(client.base_url).rstrip("/"))
        for board, expected in (("songs", "votes_fixed"), ("liked", "like_refused")):
            assert (await visitor.like("a", board)).json()["counted"] is True
            for fields in ({"undo": "a"}, {"key": "b", "replaces": "a"}):
                answer = await visitor.send(f"/boards/{board}/likes", data=fields, headers=SCRIPT)
                assert code(answer) == (409, expected)
        assert await score(visitor.url, "a", "songs") == 2


async def test_a_vote_for_a_hidden_member_is_taken_back(valkey_url: str) -> None:
    """Otherwise a visitor with one vote could not vote any more."""
    async with server(valkey_url, *parse_boards(SONGS), anonymous_admin=True) as client:
        await post(client, {"key": "Ada", "actor": "x"}, {"key": "Bo", "actor": "y"})
        visitor = Visitor(str(client.base_url).rstrip("/"))
        assert (await visitor.like("Ada", "songs")).json()["counted"] is True
        assert (await client.patch("/v1/boards/songs/records/Ada", json={"hidden": True})).is_success
        answer = await visitor.send("/boards/songs/likes", data={"undo": "Ada"}, headers=SCRIPT)
        assert answer.json()["counted"] is True, answer.text
        assert (await visitor.like("Bo", "songs")).json()["counted"] is True


async def test_a_strange_time_in_the_address_of_a_like_counts_nothing(valkey_url: str) -> None:
    """Python refuses to read numbers with thousands of digits."""
    async with server(valkey_url, *BOARDS) as producer:
        await post(producer, {"key": "Ada"})
        visitor = Visitor(str(producer.base_url).rstrip("/"))
        await visitor.like("Ada")
        answer = await get(visitor, f"/boards/liked/likes?key=Ada&until={'9' * 5000}&signature=0")
        assert (answer.status_code, "#liked" in answer.headers["location"]) == (303, False)
