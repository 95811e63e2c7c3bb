"""Creating, changing and deleting boards over HTTP, with two processes on one store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from live.domain.producer import Scope
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.connection.client import connect as connect_store
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.definitions import EVERY_KIND
from tests.harness.ingest import make_key
from tests.harness.producer import post
from tests.harness.producers import bearer
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.waiting import DEADLINE, eventually

pytestmark = pytest.mark.slow

KISS: Final[dict[str, Any]] = {"title": "Kisses", "types": ["kiss"], "window": "forever"}
PATH: Final = "/v1/boards/fresh"


@asynccontextmanager
async def servers(
    store: str, count: int = 2, **changes: Any
) -> AsyncIterator[tuple[Settings, list[httpx.AsyncClient]]]:
    """Servers with one key prefix, and the board `posts` in their file."""
    settings = fresh_settings(store, **{"anonymous_admin": True, **changes})
    clients = [httpx.AsyncClient() for _ in range(count)]
    running = [run_server(settings, [rolling_board()]) for _ in range(count)]
    try:
        for client, server in zip(clients, running, strict=True):
            client.base_url = httpx.URL(await server.__aenter__())
        yield settings, clients
    finally:
        for client, server in zip(clients, running, strict=True):
            await client.aclose()
            await server.__aexit__(None, None, None)


async def wait_until_known(client: httpx.AsyncClient, *, there: bool = True) -> None:
    """Wait until a server knows the board, or no longer does."""

    async def agrees() -> bool:
        return ((await client.get(PATH)).status_code == 200) is there

    await eventually(agrees)


async def keys_of_fresh(settings: Settings) -> list[bytes]:
    """The store keys of the board `fresh`."""
    client = connect_store(settings.store, settings)
    pattern = f"{Keys(settings.key_prefix, 'fresh').channel}*"
    found = [key async for key in client.scan_iter(match=pattern, count=1000)]
    await client.aclose()
    return found


async def watch(client: httpx.AsyncClient) -> ClientConnection:
    """A viewer of the board `fresh`."""
    return await connect(f"{str(client.base_url).replace('http', 'ws').rstrip('/')}{PATH}/live")


async def drain(viewer: ClientConnection) -> None:
    """Receive messages until the connection ends."""
    async with asyncio.timeout(DEADLINE):
        while True:
            await viewer.recv()


def code(response: httpx.Response) -> tuple[int, str]:
    """The status and code of a refusal."""
    return response.status_code, response.json()["code"]


async def test_a_board_is_created_changed_and_deleted(any_store: str) -> None:
    """The process that was asked knows a change at once, and another process soon.

    A process that starts later knows the change too.
    """
    async with servers(any_store) as (settings, (one, two)):
        made = await one.put(PATH, json=KISS)
        assert (made.status_code, made.headers["location"]) == (201, PATH)
        assert made.json() == next(b for b in (await one.get("/v1/boards")).json()["boards"] if b["board"] == "fresh")
        assert (await post(one, {"key": "a", "type": "kiss"}))["offsets"].keys() == {"fresh"}
        await wait_until_known(two)
        assert (await post(two, {"key": "a", "type": "kiss"}))["accepted"] == 1
        async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as three:
            assert (await three.get(PATH)).json()["records"] == [{"key": "a", "score": 2, "rank": 1}]

        changed = await two.put(PATH, json={**KISS, "title": "More", "types": ["like"]})
        assert (changed.status_code, changed.json()["title"]) == (200, "More")
        assert (await post(two, {"key": "a"}))["offsets"].keys() == {"fresh", "posts"}

        async def has_changed() -> bool:
            return bool((await one.get(PATH)).json()["title"] == "More")

        await eventually(has_changed)
        assert (await post(one, {"key": "a"}))["offsets"].keys() == {"fresh", "posts"}

        assert (await one.delete(PATH)).status_code == 204
        assert code(await one.get(PATH)) == (404, "board_not_found")
        assert code(await one.delete(PATH)) == (404, "board_not_found")
        assert code(await one.patch(PATH, json={})) == (404, "board_not_found")
        await wait_until_known(two, there=False)
        assert await keys_of_fresh(settings) == []


async def test_a_changed_board_has_a_new_tag(valkey_url: str) -> None:
    """The tag changes without new events."""
    async with servers(valkey_url, 1) as (_, (one,)):
        await one.put(PATH, json=KISS)
        page = await one.get(PATH)
        await one.patch(PATH, json={"title": "Other"})
        again = await one.get(PATH, headers={"If-None-Match": page.headers["etag"]})
        assert (again.status_code, again.json()["title"]) == (200, "Other")


async def test_all_contradictions_of_a_definition_are_reported(valkey_url: str) -> None:
    """Each mistake has its own line, and no board is created."""
    async with servers(valkey_url, 1) as (_, (one,)):
        wrong = await one.put(PATH, json={"cap": 5, "window": {"rolling": "1h", "slot": "7m"}, "idle_ttl": "0s"})
        assert code(wrong) == (422, "board_invalid")
        assert len(wrong.json()["detail"].splitlines()) == 3
        assert code(await one.put("/v1/boards/Fresh", json={})) == (422, "board_invalid")
        for body in (b"[]", b"{", b"\xff"):
            assert code(await one.put(PATH, content=body)) == (400, "malformed_body")
        assert code(await one.put(PATH, content=b"{}", headers={"Content-Type": "text/html"}))[0] == 415
        assert (await one.get(PATH)).status_code == 404


async def test_a_forbidden_change_is_named(valkey_url: str) -> None:
    """All such changes of a request are named."""
    async with servers(valkey_url, 1) as (_, (one,)):
        await one.put(PATH, json=KISS)
        refused = await one.patch(PATH, json={"clock": "event", "operator": "set", "title": "x"})
        assert code(refused) == (409, "board_fixed")
        assert [line.split("`")[1] for line in refused.json()["detail"].splitlines()] == ["operator", "clock"]


async def test_a_frozen_board_refuses_events_and_can_be_read(any_store: str) -> None:
    """The store refuses the events, so freezing takes effect in all processes at once.

    A thawed board accepts events again.
    """
    async with servers(any_store) as (_, (one, two)):
        await one.put(PATH, json=KISS)
        await wait_until_known(two)
        await post(two, {"key": "a", "board": "fresh"})
        frozen = await one.patch(PATH, json={"frozen": True})
        assert frozen.json()["frozen"] is True
        before = (await two.get(PATH)).json()
        for client in (one, two):
            answer = await post(client, {"key": "a", "board": "fresh"}, {"key": "b", "board": "fresh", "id": "1"})
            assert [refusal["code"] for refusal in answer["rejected"]] == ["frozen", "frozen"]
        assert (await two.get(PATH)).json() == before
        await one.patch(PATH, json={"frozen": False})
        assert (await post(two, {"key": "b", "board": "fresh", "id": "1"}))["accepted"] == 1
        assert (await one.put("/v1/boards/cold", json={**KISS, "frozen": True})).status_code == 201
        assert (await post(one, {"key": "a", "board": "cold"}))["rejected"][0]["code"] == "frozen"


async def test_viewers_of_a_deleted_board_are_closed(valkey_url: str) -> None:
    """The close code is 3502, in every process. Viewers of other boards stay."""
    async with servers(valkey_url) as (_, (one, two)):
        await one.put(PATH, json=KISS)
        await wait_until_known(two)
        viewers = [await watch(one), await watch(two)]
        other_viewer = await connect(f"{str(two.base_url).replace('http', 'ws').rstrip('/')}/v1/boards/posts/live")
        await other_viewer.recv()
        await one.delete(PATH)
        for viewer in viewers:
            with pytest.raises(ConnectionClosed) as is_closed:
                await drain(viewer)
            assert is_closed.value.rcvd is not None
            assert is_closed.value.rcvd.code == 3502
        await post(two, {"key": "a"})
        assert '"changed"' in str(await other_viewer.recv())
        await other_viewer.close()


async def test_viewers_follow_a_change_and_a_recreated_board(valkey_url: str) -> None:
    """In both cases, viewers get a sync with the whole top."""
    async with servers(valkey_url) as (_, (one, two)):
        await one.put(PATH, json=KISS | {"ties": "key"})
        await wait_until_known(two)
        await post(one, *({"key": member, "amount": amount, "type": "kiss"} for member, amount in (("a", 1), ("b", 2))))
        viewer = await watch(two)
        assert '"key":"b","score":2,"rank":1' in str(await viewer.recv())
        await one.patch(PATH, json={"sort_order": "asc"})
        async with asyncio.timeout(DEADLINE):
            while '"sync"' not in (frame := str(await viewer.recv())):
                pass
        assert '"key":"a","score":1,"rank":1' in frame
        old = (await one.get(PATH)).json()["epoch"]
        await one.delete(PATH)
        assert (await one.put(PATH, json=KISS)).status_code == 201
        page = (await one.get(PATH)).json()
        assert page["epoch"] != old
        assert page["records"] == []
        # Server `two` may have read the definitions between the two requests, and has then closed the socket.
        with suppress(ConnectionClosed):
            async with asyncio.timeout(DEADLINE):
                while page["epoch"] not in (frame := str(await viewer.recv())):
                    pass
                assert '"sync"' in frame
        await wait_until_known(two)
        assert (await post(two, {"key": "z", "board": "fresh"}))["accepted"] == 1
        await viewer.close()


async def test_posts_in_flight_never_revive_a_board(any_store: str) -> None:
    """Each event counts before the deletion or gets `board_unknown`.

    The process that takes an event may not know of the deletion yet.
    """
    async with servers(any_store) as (settings, clients):
        for _ in range(3):
            await clients[0].put(PATH, json={**KISS, "types": ["kiss"]})
            await wait_until_known(clients[1])
            codes: list[str] = []
            stopped = asyncio.Event()

            async def hammer(
                client: httpx.AsyncClient, codes: list[str] = codes, stopped: asyncio.Event = stopped
            ) -> None:
                while not stopped.is_set():
                    answer = await post(
                        client, {"key": "a", "board": "fresh"}, {"key": "b", "board": "fresh", "id": "1"}
                    )
                    codes.extend(refusal["code"] for refusal in answer["rejected"])

            hammers = [asyncio.create_task(hammer(client)) for client in clients for _ in range(4)]
            await asyncio.sleep(0.2)
            assert codes == []
            assert (await clients[0].delete(PATH)).status_code == 204
            await asyncio.sleep(0.1)
            assert await keys_of_fresh(settings) == []
            await wait_until_known(clients[1], there=False)
            await asyncio.sleep(0.1)
            stopped.set()
            await asyncio.gather(*hammers)
            assert set(codes) == {"board_unknown"}
            assert await keys_of_fresh(settings) == []


async def test_a_deleted_board_is_404_before_its_process_knows(valkey_url: str) -> None:
    """The answer is not an error of the store."""
    async with servers(valkey_url) as (_, (one, two)):
        await one.put(PATH, json=KISS)
        await wait_until_known(two)
        await one.delete(PATH)
        assert code(await two.get(PATH)) == (404, "board_not_found")


async def test_concurrent_puts_have_one_winner(any_store: str) -> None:
    """One request creates the board, and the others change it. All processes show the last choices."""
    async with servers(any_store) as (_, clients):
        works = [clients[i % 2].put(PATH, json={**KISS, "title": f"t{i}"}) for i in range(6)]
        responses = await asyncio.gather(*works)
        assert sorted(response.status_code for response in responses) == [200] * 5 + [201]
        last = (await clients[0].get("/v1/trail?limit=1")).json()["trail"][0]
        for client in clients:

            async def same(client: httpx.AsyncClient = client) -> bool:
                return bool((await client.get(PATH)).json().get("title") == last["after"]["title"])

            await eventually(same)


async def test_only_admins_can_change_boards(valkey_url: str) -> None:
    """API keys need the verb `admin` and the board.

    The audit log names them, and shows each API key the entries of its boards.
    """
    async with servers(valkey_url, 1) as (settings, (one,)):
        client = connect_store(valkey_url, settings)
        producers = ProducerStore(client)
        keys = {}
        for name, scope in (
            ("poster", Scope()),
            ("boss", Scope(verbs=("admin",))),
            ("chief", Scope(verbs=("admin", "post"), boards=("other",), sources=("kiss",))),
        ):
            keys[name] = {"Authorization": f"Bearer {name}.{(await producers.add(name, scope))[1]}"}
        await client.aclose()

        async def is_closed() -> bool:
            return (await one.get("/v1/trail")).status_code == 401

        await eventually(is_closed)
        assert code(await one.put(PATH, json=KISS)) == (401, "credentials_required")
        for name in ("poster", "chief"):
            for response in (
                await one.put(PATH, json=KISS, headers=keys[name]),
                await one.patch(PATH, json={}, headers=keys[name]),
                await one.delete(PATH, headers=keys[name]),
            ):
                assert code(response) == (403, "scope_forbidden")
        assert (await one.put(PATH, json=KISS, headers=keys["boss"])).status_code == 201
        assert (await one.put("/v1/boards/other", json=KISS, headers=keys["chief"])).status_code == 201
        assert code(await one.get("/v1/trail", headers=keys["poster"])) == (403, "scope_forbidden")
        trail = (await one.get("/v1/trail", headers=keys["boss"])).json()["trail"]
        assert [(entry["who"], entry.get("board")) for entry in trail] == [
            ("chief", "other"), ("boss", "fresh"),
        ]  # fmt: skip
        trail = (await one.get("/v1/trail", headers=keys["chief"])).json()["trail"]
        assert [entry["board"] for entry in trail] == ["other"]
        assert code(await one.get("/v1/trail?limit=0", headers=keys["boss"])) == (400, "parameter_invalid")


async def test_an_anonymous_admin_is_named_in_the_audit_log(valkey_url: str) -> None:
    """With `anonymous_admin`, programs on this machine may change boards without an API key."""
    async with servers(valkey_url, 1) as (_, (one,)):
        await one.put(PATH, json=KISS)
        assert (await one.get("/v1/trail")).json()["trail"][0]["who"] == "anonymous"
    async with servers(valkey_url, 1, anonymous_admin=False) as (_, (one,)):
        assert code(await one.put(PATH, json=KISS)) == (401, "credentials_required")


async def test_an_unused_board_is_deleted(any_store: str) -> None:
    """Everything that the board owns is deleted too. Listing and readiness do not count as use. Boards in use stay."""
    async with servers(any_store) as (settings, (one, two)):
        await one.put(PATH, json={**KISS, "idle_ttl": "2s"})
        await one.put("/v1/boards/read", json={**KISS, "idle_ttl": "2s"})
        await one.put("/v1/boards/seen", json={**KISS, "idle_ttl": "2s"})
        await one.put("/v1/boards/fed", json={**KISS, "idle_ttl": "2s"})
        await wait_until_known(two)
        viewer = await connect(f"{str(two.base_url).replace('http', 'ws').rstrip('/')}/v1/boards/seen/live")

        async def is_deleted() -> bool:
            assert (await two.get("/v1/boards/read")).status_code == 200
            assert (await post(one, {"key": "a", "board": "fed"}))["accepted"] == 1
            await two.get("/readyz")
            boards = {board["board"] for board in (await two.get("/v1/boards")).json()["boards"]}
            assert boards >= {"posts", "read", "seen", "fed"}
            await asyncio.sleep(0.1)
            return "fresh" not in boards

        await eventually(is_deleted)
        entry = (await one.get("/v1/trail?limit=1")).json()["trail"][0]
        assert (entry["who"], entry["what"], entry["board"]) == ("server", "expired", "fresh")
        assert await keys_of_fresh(settings) == []
        await viewer.close()

        async def are_deleted() -> bool:
            return [board["board"] for board in (await two.get("/v1/boards")).json()["boards"]] == ["posts"]

        await eventually(are_deleted)


async def test_a_union_needs_parts_without_idle_ttl(valkey_url: str) -> None:
    """Once the union exists, the owner of a part may give the part an `idle_ttl`, or delete it."""
    async with servers(valkey_url, 1) as (_, (one,)):
        await one.put(PATH, json={"idle_ttl": "1h"})
        union = {"union": ["fresh", "posts"]}
        assert code(await one.put("/v1/boards/both", json=union)) == (422, "board_invalid")
        await one.patch(PATH, json={"idle_ttl": None, "ties": "first"})
        assert (await one.put("/v1/boards/both", json=union)).status_code == 201
        assert (await one.patch(PATH, json={"idle_ttl": "1h"})).status_code == 200
        assert (await one.delete(PATH)).status_code == 204


async def test_a_union_and_its_parts_keep_one_score(valkey_url: str) -> None:
    """Otherwise the fields of one would be packed in another way than those of the other."""
    score = [{"field": "goals", "max": 99}, {"field": "cards", "max": 99}]
    choices = {"window": {"rolling": "2h", "slot": "1h"}, "score": score}
    async with servers(valkey_url, 1) as (_, (one,)):
        for board in ("part", "other", "whole"):
            feeds = {"union": ["part", "other"]} if board == "whole" else {"types": ["goal"]}
            made = await one.put(f"/v1/boards/{board}", json=choices | feeds)
            assert made.status_code == 201, made.text
        for board in ("part", "whole"):
            assert code(await one.patch(f"/v1/boards/{board}", json={"score": score[::-1]})) == (409, "board_fixed")


async def test_a_process_that_does_not_know_of_a_deletion_is_ready(valkey_url: str) -> None:
    """A board that was deleted elsewhere does not affect readiness, nor the records of a member on all boards."""
    async with servers(valkey_url) as (_, (one, two)):
        for _ in range(3):
            await one.put(PATH, json={"title": "Fresh"})
            await wait_until_known(two)
            await post(two, {"key": "a"})
            await one.delete(PATH)
            member_records = await two.get("/v1/records/a")
            assert [record["board"] for record in member_records.json()["records"]] == ["posts"]
            await one.put(PATH, json={"title": "Fresh"})
            await wait_until_known(two)
            await one.delete(PATH)
            assert (await two.get("/readyz")).status_code == 200


async def credentials(settings: Settings, client: httpx.AsyncClient, producer: str, **scope: Any) -> dict[str, str]:
    """The header field with a new API key that the server knows."""
    fields = dict([bearer(await make_key(settings, producer, **scope))])

    async def is_known() -> bool:
        return (await client.get("/v1/trail", headers=fields)).status_code != 401

    await eventually(is_known)
    return fields


async def test_a_definition_can_be_put_back(valkey_url: str) -> None:
    """A PUT of the definition restores every kind of board, also after a change."""
    async with servers(valkey_url, 1, journal="sqlite") as (settings, (client,)):
        client.headers.update(await credentials(settings, client, "owner", verbs=("admin",)))
        await client.put("/v1/boards/other", json={})
        for name, choices in EVERY_KIND.items():
            path = f"/v1/boards/{name}"
            assert (await client.put(path, json=choices)).status_code == 201
            response = await client.get(f"{path}/definition")
            assert response.json() == choices
            assert response.headers["cache-control"] in {"no-store", "private, no-store"}
            if name != "plain":  # a union contains this board, so it can't be deleted
                assert (await client.delete(path)).status_code == 204
                assert code(await client.get(f"{path}/definition")) == (404, "board_not_found")
                assert (await client.put(path, json=response.json())).status_code == 201
            assert (await client.get(f"{path}/definition")).json() == choices
        await client.patch("/v1/boards/week", json={"title": "Weeks", "window": {"keep": None}})
        changed = EVERY_KIND["week"] | {"title": "Weeks"}
        changed["window"] = {name: value for name, value in changed["window"].items() if name != "keep"}
        assert (await client.get("/v1/boards/week/definition")).json() == changed


async def test_a_definition_names_no_board_that_the_request_may_not_read(valkey_url: str) -> None:
    """The definition of a union leaves out the parts that the reader may not read, with their weights."""
    async with servers(valkey_url, 1) as (settings, (client,)):
        owner = await credentials(settings, client, "owner", verbs=("admin",))
        reader = await credentials(settings, client, "reader", verbs=("read",), boards=("sum", "one", "two"))
        whole = {"union": ["one", "secret", "two"], "weights": [1, 7, 2], "visibility": "private"}
        for name in ("one", "secret", "two"):
            await client.put(f"/v1/boards/{name}", json={"visibility": "private"}, headers=owner)
        await client.put("/v1/boards/sum", json=whole, headers=owner)
        path = "/v1/boards/sum/definition"
        assert (await client.get(path, headers=owner)).json() == whole
        seen = (await client.get(path, headers=reader)).json()
        assert seen == whole | {"union": ["one", "two"], "weights": [1, 2]}


async def test_a_union_remembers_ids_as_long_as_its_parts(valkey_url: str) -> None:
    """Otherwise an event that comes again would count on the union only."""
    async with servers(valkey_url, 1) as (_, (client,)):

        async def change(board: str, **choices: Any) -> int:
            return (await client.patch(f"/v1/boards/{board}", json=choices)).status_code

        for name in ("one", "two"):
            assert (await client.put(f"/v1/boards/{name}", json={"dedupe_window": "7d"})).status_code == 201
        whole = {"union": ["one", "two"], "dedupe_window": "6d"}
        assert code(await client.put("/v1/boards/sum", json=whole)) == (422, "board_invalid")
        assert (await client.put("/v1/boards/sum", json=whole | {"dedupe_window": "8d"})).status_code == 201
        assert await change("one", dedupe_window="9d") == 422
        assert await change("sum", dedupe_window="5d") == 422
        assert await change("sum", dedupe_window="30d") == 200
        assert await change("one", dedupe_window="9d") == 200
        assert await change("sum", dedupe_window="8d") == 422
        assert await change("one", dedupe_window=None) == 200
        assert await change("sum", dedupe_window="7d") == 200


async def test_the_definition_of_a_board_of_the_file_makes_the_same_board(valkey_url: str) -> None:
    """An administrator can copy the board to another id."""
    async with servers(valkey_url, 1) as (_, (client,)):
        definition = (await client.get("/v1/boards/posts/definition")).json()
        assert definition == {"ties": "key", "visibility": "public"}
        await client.put(PATH, json=definition | {"title": "posts"})
        shown = {board["board"]: board for board in (await client.get("/v1/boards")).json()["boards"]}
        assert shown["fresh"] == shown["posts"] | {"board": "fresh"}
