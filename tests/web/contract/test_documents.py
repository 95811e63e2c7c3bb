"""The documents of the contract are made from the structs and match what is served."""

from typing import Any

import httpx
import msgspec
import pytest
from starlette.routing import Route
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from live.domain.event import MAX_MEMBER_BYTES, MAX_METADATA_BYTES
from live.errors import PROBLEMS, REFUSALS
from live.ingest.intake import _DECODERS
from live.settings import Settings
from live.web.contract.documents import asyncapi_document, openapi_document
from live.web.operations import by_query
from live.web.routes import routes_of
from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server, server
from tests.harness.settings import fresh_settings


async def test_openapi_matches_the_answers(valkey_url: str) -> None:
    """The answers have the fields that their schemas require, and no unknown fields."""
    async with (
        run_server(fresh_settings(valkey_url), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        document = (await client.get("/openapi.json")).json()
        assert document == msgspec.json.decode(msgspec.json.encode(openapi_document()))
        known = {"key": "a", "id": "1"}
        answer = await post(client, known)
        schemas = document["components"]["schemas"]
        assert fits(set(answer), schemas["Answer"])
        with_records = (await client.post("/v1/events?rank=true", json=[{"key": "a"}, known])).json()
        assert set(with_records) == set(schemas["Answer"]["properties"])
        assert fits(set(with_records["records"][0]), schemas["EventRecord"])
        for path, schema in (
            ("/v1/boards", "BoardList"),
            ("/v1/boards/posts", "BoardPage"),
            ("/v1/boards/posts/records/a", "RecordView"),
            ("/v1/boards/posts/records?key=a", "RecordList"),
            ("/v1/records/a", "MemberRecords"),
        ):
            assert fits(set((await client.get(path)).json()), schemas[schema])
        problem = (await client.get("/v1/boards/none")).json()
        assert problem["retryable"] is False
        assert set(problem) == set(schemas["ProblemBody"]["properties"])


def fits(fields: set[str], schema: dict[str, Any]) -> bool:
    """Whether an object has all required fields of its schema, and no unknown fields."""
    return set(schema["required"]) <= fields <= set(schema["properties"])


def test_openapi_lists_every_route() -> None:
    """The document has exactly the routes of the server, with every method and parameter.

    It leaves out the admin page, whose forms only that page can send.
    """
    paths = openapi_document()["paths"]
    served = {
        route.path.replace(":path", ""): {method.lower() for method in route.methods or ()} - {"head"}
        for route in routes_of(Settings())
        if isinstance(route, Route) and not route.path.startswith("/admin")
    }
    assert {path: set(of) for path, of in paths.items()} == served
    parameters_of = {
        of["get"]["operationId"]: {parameter["name"] for parameter in of["get"]["parameters"]}
        for of in paths.values()
        if "get" in of
    }
    assert parameters_of["getBoard"] == {
        "board",
        "limit",
        "start",
        "cursor",
        "score",
        "period",
        "If-None-Match",
        "as_of",
    }
    watching = {"board", "limit", "interval", "epoch", "offset", "key", "around", "delay", "token"}
    assert parameters_of["watchBoard"] == watching
    assert parameters_of["streamBoard"] == watching | {"Last-Event-ID"}
    assert parameters_of["listRecords"] == {"board", "key", "period", "prefix", "limit", "cursor"}
    assert parameters_of["getRecord"] == {"board", "key", "around", "period", "If-None-Match", "as_of"}
    assert parameters_of["getExplanation"] == {"board", "key", "as_of"}
    assert parameters_of["getStanding"] == {"key"}
    for path, of in paths.items():
        inside = {
            parameter["name"] for parameter in of.get("get", {}).get("parameters", []) if parameter["in"] == "path"
        }
        assert "get" not in of or inside == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def test_openapi_lists_every_problem_and_refusal() -> None:
    """The document contains all codes."""
    text = msgspec.json.encode(openapi_document()).decode()

    assert [code for code in (*PROBLEMS, *REFUSALS) if code not in text] == []


def test_openapi_has_the_limits_of_an_event() -> None:
    """The schema comes from the struct that decodes events. It has the amount's range, and allows no unknown fields."""
    event = openapi_document()["components"]["schemas"]["Event"]

    assert event["additionalProperties"] is False
    assert event["required"] == ["key"]
    assert f"1 to {MAX_MEMBER_BYTES:,} bytes" in event["properties"]["key"]["description"]
    assert f"up to {MAX_METADATA_BYTES:,} bytes" in event["properties"]["metadata"]["description"]
    assert (event["properties"]["amount"]["minimum"], event["properties"]["amount"]["maximum"]) == (-(2**53), 2**53)


def test_openapi_describes_how_to_send_events() -> None:
    """The document has all content types, the parameters and the API key."""
    path = openapi_document()["paths"]["/v1/events"]
    parameters = {parameter["name"] for parameter in path["post"]["parameters"]}

    assert all(f"`{media_type}`" in path["post"]["requestBody"]["description"] for media_type in _DECODERS)
    assert parameters == {"rank", "strict", "Prefer", "Idempotency-Key"}
    assert path["post"]["security"] == [{}, {"key": []}]


def test_openapi_lists_the_problems_of_each_operation() -> None:
    """Operations that only read do not list the problems of operations that post.

    All operations have the general problems.
    """
    paths = openapi_document()["paths"]
    statuses = {
        f"{method} {path}": set(of["responses"]) for path, methods in paths.items() for method, of in methods.items()
    }

    assert {"400", "401", "403", "413", "415", "422", "429", "503"} <= statuses["post /v1/events"]
    assert not {"401", "413", "415", "422"} & statuses["get /v1/boards/{board}"]
    assert [name for name, codes in statuses.items() if "429" not in codes] == [
        "get /healthz", "get /readyz", "get /metrics"
    ]  # fmt: skip
    assert all({"404", "405", "500", "503"} <= of for of in statuses.values())


def test_openapi_describes_everything_it_names() -> None:
    """Operations, parameters and answers are described in sentences. Schemas and fields have a description."""
    document = openapi_document()
    for methods in document["paths"].values():
        for operation in methods.values():
            parts = [operation, *operation["parameters"], *operation["responses"].values()]
            assert all(part["description"].endswith((".", "?")) for part in parts), operation["operationId"]
            assert operation["summary"].endswith(".")
    for schema in document["components"]["schemas"].values():
        assert schema["description"]
        assert all(field["description"] for field in schema.get("properties", {}).values())


@pytest.mark.slow
async def test_an_unknown_parameter_is_refused(valkey_url: str) -> None:
    """The routes of the contract refuse the parameter `limt`, with any method.

    Routes for operations and documents ignore it, and the forms of pages are refused for another reason.
    """
    async with (
        run_server(fresh_settings(valkey_url), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        await post(client, {"key": "a"})
        for path, methods in openapi_document()["paths"].items():
            for method in methods:
                target = path.format(board="posts", key="a", id="1")
                response = await client.request(method, f"{target}?limt=3", json={})
                tags = methods[method]["tags"]
                names = {each["name"] for each in methods[method]["parameters"]}
                if tags in (["operations"], ["documents"]) or (method == "post" and tags == ["pages"]):
                    # The like form answers 403 to a request that does not come from its page.
                    forms = {"/preferences": 415, "/t": 400}
                    assert response.status_code == (forms.get(path, 403) if method == "post" else 200)
                    continue
                assert response.status_code == 400, (method, path)
                detail = response.text if tags == ["pages"] else response.json()["detail"]
                assert "there is no parameter `limt`" in detail
                assert ("did you mean `limit`?" in detail) == ("limit" in names)
        head = await client.head("/v1/boards/posts?limt=3")
        assert head.status_code == 400
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{url.replace('http', 'ws')}/v1/boards/posts/live?intervall=1s")
        assert b"did you mean `interval`?" in (refused.value.response.body or b"")


async def test_whole_numbers_have_the_limits_of_the_document(valkey_url: str) -> None:
    """The first and the last number are accepted.

    Numbers beyond them are refused, and the message names the parameter.
    """
    checked = 0
    async with server(valkey_url, open=True, anonymous_admin=True) as client:
        await post(client, {"key": "a"})
        paths = openapi_document()["paths"]
        by_query_paths = {by_query(path) for path in paths if "{key}" in path}
        for path, operations in paths.items():
            target = path.format(board="posts", key="a", id="1")
            for spec in operations.get("get", {}).get("parameters", ()):
                name, schema = spec["name"], spec["schema"]
                if schema.get("type") != "integer" or "maximum" not in schema or path.endswith(("/live", "/stream")):
                    continue
                least, most = schema["minimum"], schema["maximum"]
                asks_member = path.endswith(("{board}/slots", "{board}/records")) or path in by_query_paths
                members = [("key", "a")] if asks_member else []
                for number in (least - 1, least, most, most + 1):
                    answer = await client.get(target, params=[(name, str(number)), *members])
                    is_taken = least <= number <= most
                    assert (answer.status_code == 400) != is_taken, f"{target}?{name}={number}: {answer.text}"
                    assert is_taken or f"`{name}`" in answer.text, answer.text
                checked += 1
    assert checked == 17


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "update"])
async def test_asyncapi_describes_the_messages(valkey_url: str, kind: str) -> None:
    """A captured message has exactly the fields that the document describes."""
    async with (
        run_server(fresh_settings(valkey_url), [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url) as client,
        connect(f"{url.replace('http', 'ws')}/v1/boards/posts/live") as viewer,
    ):
        document = (await client.get("/asyncapi.json")).json()
        message = msgspec.json.decode(await viewer.recv())
        if kind == "update":
            await post(client, {"key": "a"})
            message = msgspec.json.decode(await viewer.recv())

    assert message["type"] == kind
    assert fits(set(message), document["components"]["schemas"][kind.title()])
    assert set(message) == set(document["components"]["schemas"][kind.title()]["required"])
    assert document["channels"]["boardLive"]["messages"].keys() == {
        "sync", "update", "status", "viewers", "around", "alive"
    }  # fmt: skip
    assert document == msgspec.json.decode(msgspec.json.encode(asyncapi_document()))
