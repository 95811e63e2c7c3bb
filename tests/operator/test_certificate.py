"""A certificate is renewed: nginx as documented serves the new one, and viewers stay connected."""

import asyncio
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.harness.boards import rolling_board
from tests.harness.certificate import OPENSSL, make_certificate
from tests.harness.mutation import must_be_caught
from tests.harness.nginx import NGINX, TRUSTED, command_of, nginx
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed"),
    pytest.mark.skipif(not OPENSSL, reason="openssl is not installed"),
]


def reload(folder: Path) -> None:
    """Do what the hook of a renewal does: `nginx -s reload`."""
    subprocess.run([*command_of(folder), "-s", "reload"], check=True, capture_output=True)


async def served(url: str) -> bytes:
    """The certificate that a new connection gets."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    place = httpx.URL(url)
    _, writer = await asyncio.open_connection(place.host, place.port, ssl=context)
    try:
        found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return found
    finally:
        writer.close()
        await writer.wait_closed()


async def follow(viewer: ClientConnection, model: ModelViewer, score: int) -> None:
    """Receive messages until the first record has a score. The connection must not end."""
    while not model.records or model.records[0].score != score:
        try:
            model.receive(await viewer.recv())
        except OSError as error:
            raise AssertionError("the viewer lost its connection") from error


async def renew(store: str, folder: Path, reload: Callable[[Path], None]) -> None:
    """Renew the certificate of a proxy while a viewer watches. The viewer must get every change."""
    old = make_certificate(folder)
    trusted = ssl.create_default_context(cafile=str(old.path))
    settings = fresh_settings(store, trusted_proxies=TRUSTED, open=True)
    async with run_server(settings, [rolling_board()]) as server, httpx.AsyncClient(base_url=server) as producer:
        with nginx(server, folder / "nginx", certificate=old) as url:
            before = await served(url)
            socket = f"{url.replace('https', 'wss')}/v1/boards/posts/live"
            async with connect(socket, ssl=trusted) as viewer:
                model = ModelViewer()
                await post(producer, {"key": "a"})
                await follow(viewer, model, 1)
                make_certificate(folder)
                reload(folder / "nginx")

                async def is_renewed() -> bool:
                    return await served(url) != before

                await eventually(is_renewed)
                await post(producer, {"key": "a"})
                await follow(viewer, model, 2)
                assert model.syncs == 1
            renewed = ssl.create_default_context(cafile=str(old.path))
            async with httpx.AsyncClient(base_url=url, verify=renewed) as client:
                assert (await client.get("/v1/boards/posts")).json()["records"][0]["score"] == 2


async def test_a_renewed_certificate_is_served_and_viewers_stay(valkey_url: str, tmp_path: Path) -> None:
    """A new connection gets the new certificate. The viewer of before receives updates over its old connection."""
    await renew(valkey_url, tmp_path, reload)


@pytest.mark.mutant
async def test_a_renewal_without_a_reload_is_noticed(valkey_url: str, tmp_path: Path) -> None:
    """Without `nginx -s reload`, nginx goes on with the old certificate."""
    with must_be_caught("nginx has the old certificate"):
        await renew(valkey_url, tmp_path, lambda _: None)
