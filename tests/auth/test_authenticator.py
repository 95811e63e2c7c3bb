"""The authenticator: who is let in, how soon a change is known everywhere, and what happens when the store is away."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from live.auth.authenticator import Authenticator
from live.domain.producer import Producer, Scope
from live.errors import ProblemError, StoreUnavailableError
from live.settings import Settings
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from tests.harness.settings import fresh_settings, make_client
from tests.harness.store import StoreProcess
from tests.harness.tasks import stop
from tests.harness.waiting import eventually

CLIENT = make_client(address="192.0.2.7")


class Door:
    """Some authenticators on one set of producers."""

    def __init__(self, settings: Settings, authenticators: int) -> None:
        self.client = connect(settings.store, settings)
        self.producers = ProducerStore(self.client, settings.key_prefix)
        self.authenticators = [Authenticator(self.client, settings) for _ in range(authenticators)]

    async def key(self, producer: str = "shop", **scope: Any) -> bytes:
        """Make a key; gives the header that proves it."""
        _, secret = await self.producers.add(producer, Scope(**scope))
        return f"Bearer {producer}.{secret}".encode()


@asynccontextmanager
async def door(store: str, authenticators: int = 1, **changes: Any) -> AsyncIterator[Door]:
    """Gates that run while in the context."""
    made = Door(fresh_settings(store, **changes), authenticators)
    for authenticator in made.authenticators:
        await authenticator.open()
    tasks = [asyncio.create_task(authenticator.run()) for authenticator in made.authenticators]
    try:
        yield made
    finally:
        await stop(*tasks)
        await made.client.aclose()


def answer(authenticator: Authenticator, header: bytes | None) -> Producer | str:
    """The producer, or the code of the problem."""
    try:
        return authenticator.identify(header, CLIENT)
    except ProblemError as problem:
        return problem.code if problem.headers["WWW-Authenticate"].startswith("Bearer ") else "no challenge"
    except StoreUnavailableError:
        return "away"


async def test_without_a_key_everybody_may_send(any_store: str) -> None:
    """Under the address, at the default rate; but a header that proves nothing is refused."""
    async with door(any_store, rate=7, burst=9) as made:
        producer = made.authenticators[0].identify(None, CLIENT)
        assert (producer.id, producer.boards, producer.rate, producer.burst) == ("", None, 7, 9)
        assert answer(made.authenticators[0], b"Bearer shop.secret") == "credentials_invalid"


async def test_a_key_opens_for_its_producer(any_store: str) -> None:
    """With its boards, verbs and rate; everybody else stays out."""
    settings = fresh_settings(any_store)
    made = Door(settings, 1)
    (authenticator,) = made.authenticators
    header = await made.key(boards=("posts",), rate=5.0)
    other = await made.key("other")
    await authenticator.open()
    producer = authenticator.identify(header, CLIENT)
    assert (producer.id, producer.rate, producer.rate_key) == ("shop", 5.0, "shop")
    assert producer.boards == frozenset({"posts"})
    assert answer(authenticator, None) == "credentials_required"
    for wrong in (
        b"", b"Bearer", b"Bearer shop", b"Bearer shop.", b"Basic " + header[7:], header + b"x", header[:-1],
        header.replace(b"shop", b"other"), header.replace(b"shop", b"nobody"), other.replace(b"other", b"shop"),
    ):  # fmt: skip
        assert answer(authenticator, wrong) == "credentials_invalid"
    await made.client.aclose()


@pytest.mark.parametrize("changes", [{"host": "192.0.2.1"}, {"host": "example.test"}])
async def test_where_others_listen_a_key_is_required(any_store: str, changes: dict[str, Any]) -> None:
    """Also when there is none: a store that has lost its keys does not open the door."""
    async with door(any_store, **changes) as made:
        assert answer(made.authenticators[0], None) == "credentials_required"
    async with door(any_store, open=True, **changes) as made:
        assert made.authenticators[0].identify(None, CLIENT).id == ""


async def test_open_to_all_a_given_key_has_to_be_right(any_store: str) -> None:
    """Anonymous or proven, nothing in between."""
    async with door(any_store, open=True) as made:
        header = await made.key()
        await made.authenticators[0].open()
        assert made.authenticators[0].identify(None, CLIENT).id == ""
        assert made.authenticators[0].identify(header, CLIENT).id == "shop"
        assert answer(made.authenticators[0], header + b"x") == "credentials_invalid"


@pytest.mark.slow
async def test_a_revoked_key_is_refused_everywhere_within_five_seconds(any_store: str) -> None:
    """Two processes; and a new one is known as soon. Whoever remembers an answer is told to ask again."""
    async with door(any_store, authenticators=2) as made:
        header = await made.key()

        async def known() -> bool:
            return all(isinstance(answer(authenticator, header), Producer) for authenticator in made.authenticators)

        await eventually(known, 5)
        generations = [authenticator.generation for authenticator in made.authenticators]
        await made.producers.revoke("shop")
        revoked = time.monotonic()

        async def refused() -> bool:
            return all(answer(authenticator, header) == "credentials_invalid" for authenticator in made.authenticators)

        await eventually(refused, 5)
        assert time.monotonic() - revoked < 5
        assert all(
            authenticator.generation > before
            for authenticator, before in zip(made.authenticators, generations, strict=True)
        )
        assert all(answer(authenticator, None) == "credentials_required" for authenticator in made.authenticators)


async def test_both_secrets_open_while_a_producer_changes_over(any_store: str) -> None:
    """Then the first one is revoked, and the second goes on."""
    async with door(any_store) as made:
        (authenticator,) = made.authenticators
        old, new = await made.key(), await made.key()
        await authenticator.open()
        assert [answer(authenticator, header) == authenticator.identify(new, CLIENT) for header in (old, new)] == [
            True,
            True,
        ]
        record = (await made.producers.load()).records["shop"]
        await made.producers.revoke("shop", record.secrets[0].fingerprint)
        await authenticator.open()
        assert answer(authenticator, old) == "credentials_invalid"
        assert authenticator.identify(new, CLIENT).id == "shop"


async def test_once_there_was_a_key_one_is_required(any_store: str) -> None:
    """After the last was revoked, after a restart, and for a running process after the store has lost them."""
    async with door(any_store) as made:
        await made.key()
        await made.producers.revoke("shop")
        await made.authenticators[0].open()
        assert answer(made.authenticators[0], None) == "credentials_required"
        again = Authenticator(made.client, made.authenticators[0]._settings)
        await again.open()
        assert answer(again, None) == "credentials_required"
        await made.client.delete(made.producers.key)
        await made.authenticators[0].open()
        assert answer(made.authenticators[0], None) == "credentials_required"


async def test_before_the_first_look_nobody_is_let_in(valkey_url: str) -> None:
    """Nobody knows yet whether keys are required."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    authenticator = Authenticator(client, settings)
    assert (answer(authenticator, None), answer(authenticator, b"Bearer a.b")) == ("away", "away")
    await client.aclose()


@pytest.mark.fault
async def test_a_store_that_is_frozen_lets_nobody_in_on_old_news(own_store: StoreProcess) -> None:
    """Until 4.5 s after the last look; who remembers an answer is told to ask again; it is logged once."""
    async with door(own_store.url) as made:
        (authenticator,) = made.authenticators
        header = await made.key()
        await authenticator.open()
        generation = authenticator.generation
        with capture_logs() as logs:
            with own_store.frozen():
                frozen = time.monotonic()
                assert authenticator.identify(header, CLIENT).id == "shop"

                async def told() -> bool:
                    return authenticator.generation > generation

                await eventually(told, 5)
                assert time.monotonic() - frozen < 5
                assert answer(authenticator, header) == "away"
                assert answer(authenticator, None) == "away"

            async def back() -> bool:
                return isinstance(answer(authenticator, header), Producer)

            await eventually(back)
        lines = [line for line in logs if line["event"] == "can't read the API keys"]
        assert len(lines) == 1
        assert header.decode().partition(".")[2] not in str(logs)


async def test_a_process_that_starts_without_its_store_finds_it_later(own_store: StoreProcess) -> None:
    """The first look is made as soon as it can be."""
    settings = fresh_settings(own_store.url)
    own_store.kill()
    client = connect(own_store.url, settings)
    authenticator = Authenticator(client, settings)
    with pytest.raises(StoreUnavailableError):
        await authenticator.open()
    running = asyncio.create_task(authenticator.run())
    own_store.start()

    async def let_in() -> bool:
        return isinstance(answer(authenticator, None), Producer)

    await eventually(let_in)
    await stop(running)
    await client.aclose()
