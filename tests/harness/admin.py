"""An HTTP client that acts as the browser of an administrator: it keeps cookies and sends the forms that pages show."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import httpx

from live.domain.board import Board
from live.domain.producer import Scope
from live.settings import Settings
from live.store.connection.client import connect
from live.store.registry.audit_trail import AuditEntry, AuditTrail
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.server import run_server

OWN = {"Sec-Fetch-Site": "same-origin"}


async def add_key(settings: Settings, name: str, *boards: str, verbs: Sequence[Any] = ("admin",), **scope: Any) -> str:
    """Make an API key, for all boards or for some."""
    store = connect(settings.store, settings)
    try:
        given = Scope(verbs=tuple(verbs), boards=boards or None, **scope)
        return f"{name}.{(await ProducerStore(store).add(name, given))[1]}"
    finally:
        await store.aclose()


async def uses_of(settings: Settings) -> Mapping[str, int]:
    """When each API key was last used, and how many of its requests its rate refused, as the store has it."""
    store = connect(settings.store, settings)
    try:
        return await ProducerStore(store).last_uses()
    finally:
        await store.aclose()


async def trail_of(settings: Settings) -> list[AuditEntry]:
    """The audit log in the store, newest first."""
    store = connect(settings.store, settings)
    try:
        return await AuditTrail(store).last(1000)
    finally:
        await store.aclose()


class Administrator:
    """The browser of an administrator, who may be signed in."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def sign_in(self, key: str, **headers: str) -> httpx.Response:
        """Sign in with an API key."""
        return await self.client.post("/admin/session", data={"key": key}, headers={**OWN, **headers})

    async def get(self, page: str = "", **headers: str) -> httpx.Response:
        """Load a page."""
        path = f"/admin/{page}".rstrip("/") if not page.startswith("?") else f"/admin{page}"
        return await self.client.get(path, headers=headers)

    async def act(self, page: str, act: str, **fields: str) -> httpx.Response:
        """Load a page and send its form for `act`. Fail if the page has no such form."""
        held = fields_of((await self.get(page)).text, act)
        return await self.send(page, {**held, **fields})

    async def send(self, page: str, fields: dict[str, str], headers: dict[str, str] | None = None) -> httpx.Response:
        """Send a form."""
        path = f"/admin/{page}".rstrip("/")
        return await self.client.post(path, data=fields, headers=OWN if headers is None else headers)


def fields_of(html: str, act: str) -> dict[str, str]:
    """Return the hidden fields of the first form for `act`."""
    for form in re.findall(r"<form.*?</form>", html, re.DOTALL):
        found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form)
        found += re.findall(r'<button name="(act)" value="([^"]*)">', form)
        if ("act", act) in found:
            return {name: unescape(value) for name, value in found}
    raise AssertionError(f"the page has no form to {act}")


@asynccontextmanager
async def administrator(
    settings: Settings, *boards: Board, key: str = "", path: str = ""
) -> AsyncIterator[Administrator]:
    """Yield an administrator of a new server, who is signed in if there is a `key`."""
    async with (
        run_server(settings, boards or [rolling_board()]) as url,
        httpx.AsyncClient(base_url=url + path, timeout=180) as client,
    ):
        browser = Administrator(client)
        if key:
            assert (await browser.sign_in(key)).status_code == 303
        yield browser
