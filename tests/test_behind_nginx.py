"""A server behind a real nginx with the documented configuration: frames, streams, restarts, sub-paths."""

import asyncio
import os
import random
import re
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from playwright.async_api import Request
from websockets.asyncio.client import connect

from tests.harness.admin import Administrator, add_key, trail_of
from tests.harness.boards import built, rolling_board
from tests.harness.browser import CHROMIUM, launched, rows, until_first, until_live, until_loaded
from tests.harness.nginx import DOCUMENTED, NGINX, TRUSTED, behind_nginx, nginx
from tests.harness.producer import post
from tests.harness.server import ServerProcess, run_server
from tests.harness.settings import fresh_settings
from tests.harness.sse import streaming
from tests.harness.viewer import ModelViewer, keep_watching
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.skipif(NGINX is None, reason="nginx is not installed")]

ROOT = "/live"
FAIL2BAN = shutil.which("fail2ban-regex")
BELOW = (("location / {", f"location {ROOT}/ {{"),)


def connections_to(url: str) -> set[int]:
    """Return the local ports of connections to a server on this machine."""
    port = urlsplit(url).port
    lines = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    ends = [(line[1].split(":")[1], line[2].split(":")[1], line[3]) for line in lines]
    return {int(local, 16) for local, remote, state in ends if int(remote, 16) == port and state == "01"}


def test_nginx_accepts_the_file_as_it_is(tmp_path: Path) -> None:
    """On a machine where no other program has made a folder, nginx makes those that the file names, and opens the log.

    The test has folders of its own in place of those of the machine.
    """
    main = tmp_path / "nginx.conf"
    main.write_text(f"user root;\nevents {{}}\nhttp {{ include {DOCUMENTED}; }}\n", encoding="utf-8")
    apart = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not have folders of its own in place of those of the machine")
    own = "for folder in /var/cache /var/log/nginx; do mount -t tmpfs none $folder; done"
    command = f"{own}; {NGINX} -t -e stderr -c {main} && ls /var/cache /var/log/nginx"
    done = subprocess.run([*apart, "sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "live_board.log" in done.stdout


async def test_websockets_and_streams_pass(valkey_url: str, tmp_path: Path) -> None:
    """Frames and events arrive one by one while the connection is open: nothing buffers them."""
    async with behind_nginx(valkey_url, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as client:
        socket_url = url.replace("http", "ws")
        async with (
            connect(f"{socket_url}/v1/boards/posts/live") as viewer,
            streaming(client) as stream,
        ):
            model = ModelViewer()
            model.receive(await viewer.recv())
            await stream.until("sync")
            for number in range(1, 6):
                await post(client, {"key": "a"})
                while not model.records or model.records[0].score < number:
                    model.receive(await viewer.recv())
                await stream.follow(model.offset)
                assert stream.model.records == model.records


async def test_no_viewer_token_is_in_the_log(valkey_url: str, tmp_path: Path) -> None:
    """The log of nginx has the paths of requests without their queries."""
    async with behind_nginx(valkey_url, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as client:
        for path in ("/boards/posts", "/v1/boards/posts/stream", "/nothing"):
            async with client.stream("GET", path, params={"token": "of-a-viewer"}):
                pass

        async def logged() -> bool:
            return "/nothing" in (tmp_path / "access.log").read_text(encoding="utf-8")

        await eventually(logged)
        assert "of-a-viewer" not in (tmp_path / "access.log").read_text(encoding="utf-8")


async def test_a_proxy_may_sign_people_in(valkey_url: str, tmp_path: Path) -> None:
    """With the documented lines, a signed-in person reads a private board. The sign-in service gets no API key."""
    page = (Path(__file__).parents[1] / "docs" / "private-boards.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^```nginx\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Stand in for oauth2-proxy: whoever has a cookie is signed in."""
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        status = b"202 Accepted" if b"signed=in" in asked[-1] else b"401 Unauthorized"
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        await writer.drain()
        writer.close()

    settings = fresh_settings(valkey_url, trusted_proxies=TRUSTED)
    key = await add_key(settings, "dashboard", verbs=("read",))
    staff = built(id="staff", title="Staff", visibility="private")
    async with run_server(settings, [staff]) as server, await asyncio.start_server(answer, "127.0.0.1", 0) as service:
        port = service.sockets[0].getsockname()[1]
        lines = recipe.replace("dashboard.THE-SECRET", key).replace("127.0.0.1:4180", f"127.0.0.1:{port}")
        place = "    location / {\n        proxy_pass http://live_board;\n    }\n"
        with nginx(server, tmp_path, (place, lines)) as url:
            async with httpx.AsyncClient(base_url=url, headers={"Authorization": "Bearer of.a-client"}) as client:
                for method, path in (
                    ("GET", "/boards/staff"),
                    ("POST", "/v1/events"),
                    ("GET", "/v1/boards/staff/live"),
                ):
                    refused = await client.request(method, path, content=b"x" * 100 if method == "POST" else None)
                    assert refused.headers["location"].endswith(f"/oauth2/sign_in?rd={path}")
                assert (await client.get("/oauth2/auth")).status_code == 404
                client.cookies.set("signed", "in")
                assert (await client.get("/v1/boards/staff")).status_code == 200
                async with connect(
                    f"{url.replace('http', 'ws')}/v1/boards/staff/live", additional_headers={"Cookie": "signed=in"}
                ) as viewer:
                    assert '"sync"' in str(await viewer.recv())
                assert (await client.post("/v1/events", json={"key": "a"})).status_code == 403
    assert not any(key.encode() in head for head in asked)


@pytest.mark.skipif(FAIL2BAN is None, reason="fail2ban is not installed")
async def test_fail2ban_finds_those_who_guess(valkey_url: str, tmp_path: Path) -> None:
    """In nginx's log, fail2ban finds each request with a wrong API key, and no line that a client has made up."""
    assert FAIL2BAN is not None
    made_up = quote('x HTTP/1.1" 401 0 "y\n203.0.113.9 - - [25/Nov/2026:20:00:00 +0000] "GET / HTTP/1.1" 401 0 "')
    async with behind_nginx(valkey_url, tmp_path) as (url, _), httpx.AsyncClient(base_url=url) as client:
        for _ in range(3):
            answer = await client.post("/v1/events", json={"key": "a"}, headers={"Authorization": "Bearer shop.guess"})
            assert answer.status_code == 401
        assert (await client.post("/v1/events", json={"key": "a"})).status_code == 200
        for path in (f"/{made_up}", f"/boards/{made_up}", "/401"):
            headers = {"User-Agent": '" 401 0 "', "Referer": '" 401 0 "'}
            assert (await client.get(path, headers=headers)).status_code in {400, 404}

        async def logged() -> bool:
            return "GET /401" in (tmp_path / "access.log").read_text(encoding="utf-8")

        await eventually(logged)
    rules = Path(__file__).parents[1] / "ops" / "fail2ban" / "filter.conf"
    command = [FAIL2BAN, "--out", "ip", str(tmp_path / "access.log"), str(rules)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: ASYNC221 - nothing else runs
    assert found.stdout.split() == ["127.0.0.1"] * 3


@pytest.mark.parametrize("protocol", ["h2c", "foo", "websocket, h2c", "WebSocket"])
async def test_other_upgrades_are_not_passed_on(valkey_url: str, tmp_path: Path, protocol: str) -> None:
    """A POST with an `Upgrade` header is answered like any other POST, and its connection stays open."""
    upgrade = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": protocol, "HTTP2-Settings": "AAMAAABk"}
    async with (
        behind_nginx(valkey_url, tmp_path) as (url, _),
        httpx.AsyncClient(base_url=url, limits=httpx.Limits(max_connections=1)) as client,
    ):
        for total in range(1, 4):
            answer = await client.post("/v1/events", json={"key": "a"}, headers=upgrade)
            assert (answer.status_code, answer.json()["accepted"]) == (200, 1)
            board = await client.get("/v1/boards/posts")
            assert board.json()["total_score"] == total


async def test_connections_to_the_server_serve_many_requests(valkey_url: str, tmp_path: Path) -> None:
    """Each of 30 clients has its own connection to nginx, which reuses its connections to the server."""
    async with behind_nginx(valkey_url, tmp_path) as (url, server):
        used: set[int] = set()
        for number in range(30):
            async with httpx.AsyncClient(base_url=url) as client:
                answer = await post(client, {"key": f"k{number}"})
                assert answer["accepted"] == 1
            used |= connections_to(server)
        assert 1 <= len(used) < 5


async def test_what_operators_read_is_for_this_machine(valkey_url: str, tmp_path: Path) -> None:
    """Other machines get 403 for metrics and health, however they spell the paths. They can read the list of boards."""
    from_elsewhere = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
    async with (
        behind_nginx(valkey_url, tmp_path) as (url, _),
        httpx.AsyncClient(base_url=url) as here,
        httpx.AsyncClient(base_url=url, transport=from_elsewhere) as elsewhere,
    ):
        for path in ("/metrics", "/healthz", "/readyz"):
            assert (await here.get(path)).status_code == 200
            for spelling in (path, f"/{path}", f"/x/..{path}", f"/%{ord(path[1]):x}{path[2:]}", f"{path}?x"):
                assert (await elsewhere.get(url + spelling)).status_code == 403, spelling
        assert (await elsewhere.get("/v1/boards")).status_code == 200


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_a_restart_of_the_server_loses_nothing(own_store: Any, tmp_path: Path, way: str) -> None:
    """Viewers reconnect, and every acknowledged event is counted exactly once."""
    settings = fresh_settings(own_store.url, port=lasting_port(), trusted_proxies=TRUSTED, open=True)
    server = ServerProcess(settings, tmp_path)
    server.start()
    acknowledged: list[int] = []
    model = ModelViewer()
    with nginx(server.url, tmp_path / "nginx") as url:
        watching = asyncio.create_task(keep_watching(f"{url.replace('http', 'ws')}/v1/boards/posts/live", model))
        producing = asyncio.create_task(produce(url, acknowledged))
        try:
            for _ in range(2):
                await until_more(acknowledged)
                getattr(server, way)()
                server.start()
            await until_more(acknowledged)
            producing.cancel()
            await asyncio.gather(producing, return_exceptions=True)

            async def same() -> bool:
                return bool(model.records) and model.records[0].score >= len(acknowledged)

            await eventually(same, 30)
            async with httpx.AsyncClient(base_url=url) as client:
                (record,) = (await client.get("/v1/boards/posts")).json()["records"]
            # One event may have counted without an answer.
            assert len(acknowledged) <= record["score"] <= len(acknowledged) + 1
            assert acknowledged == list(range(len(acknowledged)))
            assert model.syncs + model.updates > 0
        finally:
            producing.cancel()
            watching.cancel()
            await asyncio.gather(producing, watching, return_exceptions=True)
            server.kill()


def lasting_port() -> int:
    """Return a port below the kernel's range for outgoing connections, so that it stays free during a restart."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    while True:
        port = random.randrange(lowest // 2, lowest)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


async def produce(url: str, acknowledged: list[int]) -> None:
    """Send events one by one, repeating each until it is acknowledged."""
    number = 0
    while True:
        async with httpx.AsyncClient(base_url=url, timeout=5) as client:
            try:
                while True:
                    event = {"key": "a", "id": str(number), "source": "test"}
                    answer = await client.post("/v1/events", json=event)
                    if answer.status_code == 200:
                        assert answer.json()["accepted"] + answer.json()["duplicate"] == 1
                        acknowledged.append(number)
                        number += 1
                    else:
                        assert answer.status_code in {502, 503, 504}
                        await asyncio.sleep(0.02)
            except httpx.TransportError:
                await asyncio.sleep(0.02)


async def until_more(acknowledged: list[int]) -> None:
    """Wait until 20 more events are acknowledged."""
    wanted = len(acknowledged) + 20

    async def enough() -> bool:
        return len(acknowledged) >= wanted

    await eventually(enough, 30)


async def test_everything_is_served_below_a_path(valkey_url: str, tmp_path: Path) -> None:
    """Routes, links, the API description and the WebSocket work below the path."""
    settings = {"root_path": ROOT, "anonymous_admin": True, "trusted_proxies": ()}
    async with (
        behind_nginx(valkey_url, tmp_path, *BELOW, **settings) as (url, server),
        httpx.AsyncClient(base_url=f"{url}{ROOT}/") as client,
        httpx.AsyncClient(base_url=f"{server}{ROOT}/") as direct,
        httpx.AsyncClient() as anywhere,
    ):
        for asked in (client, direct):
            assert (await asked.post("v1/events", json={"key": "a"})).status_code == 200
            assert (await asked.get("v1/nothing")).json()["code"] == "not_found"
            assert (await asked.get("openapi.json")).json()["servers"] == [{"url": ROOT}]
            for page in ("", "boards/posts", "embed/posts", "boards/none"):
                html = (await asked.get(page)).text
                links = re.findall(r'(?:href|src|data-root)="(/[^"]*)"', html)
                assert links, page
                assert all(link.startswith(f"{ROOT}/") for link in links), links
                for link in links:
                    status = (await anywhere.get(server + link)).status_code
                    assert status == 200, link
        made = await direct.put("v1/boards/fresh", json={})
        assert (made.status_code, made.headers["location"]) == (201, f"{ROOT}/v1/boards/fresh")
        assert (await anywhere.get(server + ROOT)).status_code == 200
        async with connect(f"{url.replace('http', 'ws')}{ROOT}/v1/boards/posts/live") as viewer:
            assert '"sync"' in str(await viewer.recv())


async def test_the_admin_page_works_below_a_path(valkey_url: str, tmp_path: Path) -> None:
    """The links and the cookie of the page are below the path, and the audit log has the client's address."""
    settings = fresh_settings(valkey_url, root_path=ROOT, admin_page="on", trusted_proxies=TRUSTED, open=True)
    key = await add_key(settings, "chief")
    async with run_server(settings, [rolling_board()]) as server:
        with nginx(server, tmp_path, *BELOW) as url:
            async with httpx.AsyncClient(base_url=f"{url}{ROOT}") as client:
                administrator = Administrator(client)
                answer = await administrator.sign_in(key)
                assert (answer.status_code, answer.headers["location"]) == (303, f"{ROOT}/admin")
                assert f"Path={ROOT};" in answer.headers["set-cookie"]
                await client.put("/v1/boards/june", json={}, headers={"Authorization": f"Bearer {key}"})
                for page in ("", "boards/june", "new", "keys", "log"):
                    html = (await administrator.get(page)).text
                    links = re.findall(r'(?:href|src|action)="(/[^"]*)"', html)
                    assert links
                    assert all(link.startswith(f"{ROOT}/") for link in links), links
                assert (await administrator.act("boards/june", "freeze")).status_code == 303
    (entry, *_) = await trail_of(settings)
    assert (entry.what, entry.who, entry.address) == ("frozen", "chief", "127.0.0.1")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
async def test_the_page_is_live_below_a_path(valkey_url: str, tmp_path: Path) -> None:
    """A real browser receives everything that it requests, and requests nothing outside the path."""
    async with (
        behind_nginx(valkey_url, tmp_path, *BELOW, root_path=ROOT) as (url, server),
        httpx.AsyncClient(base_url=f"{server}{ROOT}") as producer,
        launched() as chromium,
    ):
        page = await chromium.new_page()
        asked: list[Request] = []
        faults: list[str] = []
        page.on("request", lambda request: asked.append(request))  # noqa: PLW0108 - the browser can't call a builtin
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("websocket", lambda socket: faults.extend([] if f"{ROOT}/v1/" in socket.url else [socket.url]))
        await page.goto(f"{url}{ROOT}/")
        await page.wait_for_load_state("networkidle")  # leaving the page would cancel the requests of its cards
        await page.click("a[href$='/boards/posts']")
        await until_live(page)
        await post(producer, {"key": "a", "amount": 3})
        await until_first(page, "a")
        assert await rows(page) == [("1", "a", "3")]
        await until_loaded(page)
        # Leaving the page would cancel requests without an answer.
        answers = [await request.response() for request in asked]
        await page.click("a.mark")
        await page.wait_for_selector("text=Boards")
        assert page.url == f"{url}{ROOT}/"
        assert faults == []
        while len(answers) < len(asked):  # the page may send more requests meanwhile
            answers.append(await asked[len(answers)].response())
        for request, response in zip(asked, answers, strict=True):
            assert urlsplit(request.url).path.startswith(f"{ROOT}/")
            if response is None:  # the page made this request just before the browser left it
                assert request.failure == "net::ERR_ABORTED"
            else:
                assert response.status in {200, 304}
