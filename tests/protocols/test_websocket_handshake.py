"""The handshake of a producer's WebSocket."""

import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.harness.producers import bearer, with_keys
from tests.harness.raw_socket import PATH, raw_socket, text
from tests.harness.wire import connected, request, statuses
from tests.protocols.producing import ONE, at, next_answer

pytestmark = pytest.mark.slow


async def test_a_refused_handshake_is_an_http_answer(valkey_url: str) -> None:
    """401 without a valid API key, 403 for another origin, 400 for an invalid handshake, with problem documents."""
    for plain in (False, True):
        async with with_keys(valkey_url, plain=plain) as (url, _, keys):
            good = dict([bearer(keys["all"])])
            for headers, status, code in [
                ({}, 401, "credentials_required"),
                (dict([bearer("all.wrong")]), 401, "credentials_invalid"),
                (dict([bearer(keys["admin"])]), 403, "scope_forbidden"),
                ({**good, "Origin": "https://evil.example"}, 403, "origin_forbidden"),
            ]:
                with pytest.raises(InvalidStatus) as refused:
                    await connect(at(url), additional_headers=headers)
                assert refused.value.response.status_code == status
                assert msgspec.json.decode(refused.value.response.body)["code"] == code
                assert refused.value.response.headers["Content-Type"] == "application/problem+json"
                assert ("WWW-Authenticate" in refused.value.response.headers) is (status == 401)
            half = request("GET", PATH, bearer(keys["all"]), ("Connection", "Upgrade"), ("Upgrade", "websocket"))
            async with connected(url) as wire:
                await wire.send(half)
                assert statuses([await wire.rest()]) == [400]
            own = {**good, "Origin": url}
            async with connect(at(url), additional_headers=own) as websocket:
                await websocket.send(ONE)
                assert (await next_answer(websocket))["accepted"] == 1


@pytest.mark.parametrize("path", [f"{PATH}?x=1", "/v1/%65vents/live"])
async def test_the_path_may_be_encoded(url: str, path: str) -> None:
    """A query or an encoded letter gives the same socket, with the same limits."""
    async with raw_socket(url, path=path) as socket:
        await socket.send(text(b" " * 3000 + ONE))
        assert (await socket.answer())["accepted"] == 1


async def test_a_post_is_not_a_handshake(ours: str) -> None:
    """The handshake must be a GET."""
    fields = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
    async with connected(ours) as wire:
        await wire.send(request("POST", PATH, *fields, ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")))
        assert statuses([await wire.answer()]) == [405]
