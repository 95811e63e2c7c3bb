"""The authenticator: who is admitted, how soon changes apply everywhere, and what happens without the store."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from live.auth.authenticator import Authenticator, matches
from live.domain.producer import MOST_SECRETS, NO_DIGESTS, Principal, Scope, digest_of, with_secret
from live.domain.reader import BoardScope
from live.errors import ProblemError, StoreUnavailableError
from live.settings import Settings
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore, refused_name
from tests.harness.settings import fresh_settings, make_client
from tests.harness.store import StoreProcess
from tests.harness.tasks import stop
from tests.harness.waiting import eventually

CLIENT = make_client(address="192.0.2.7")
OLD, NEW = digest_of(b"old"), digest_of(b"new")


class Authenticators:
    """Several authenticators that share one set of producers."""

    def __init__(self, settings: Settings, authenticators: int) -> None:
        self.client = connect(settings.store, settings)
        self.producers = ProducerStore(self.client)
        self.authenticators = [Authenticator(self.client, settings) for _ in range(authenticators)]

    async def key(self, producer: str = "shop", **scope: Any) -> bytes:
        """Create an API key; returns the header that proves it."""
        _, secret = await self.producers.add(producer, Scope(**scope))
        return f"Bearer {producer}.{secret}".encode()


@asynccontextmanager
async def running(store: str, authenticators: int = 1, **changes: Any) -> AsyncIterator[Authenticators]:
    """Run authenticators while in the context."""
    made = Authenticators(fresh_settings(store, **changes), authenticators)
    for authenticator in made.authenticators:
        await authenticator.open()
    tasks = [asyncio.create_task(authenticator.run()) for authenticator in made.authenticators]
    try:
        yield made
    finally:
        await stop(*tasks)
        await made.client.aclose()


def result(authenticator: Authenticator, header: bytes | None) -> Principal | str:
    """Return the producer that a header identifies, or the code of the problem."""
    try:
        return authenticator.identify(header, CLIENT)
    except ProblemError as problem:
        return problem.code if problem.headers["WWW-Authenticate"].startswith("Bearer ") else "no challenge"
    except StoreUnavailableError:
        return "away"


async def test_without_api_keys_everybody_may_post(any_store: str) -> None:
    """A request without an API key has an anonymous producer with the default rate. An invalid header is refused."""
    async with running(any_store, rate=7) as made:
        producer = made.authenticators[0].identify(None, CLIENT)
        assert (producer.id, producer.boards, producer.rate, producer.burst) == ("", None, 7, 14)
        assert result(made.authenticators[0], b"Bearer shop.secret") == "credentials_invalid"


async def test_an_api_key_identifies_its_producer(any_store: str) -> None:
    """The producer has the boards and the rate of the API key. Requests without a valid API key are refused."""
    settings = fresh_settings(any_store)
    made = Authenticators(settings, 1)
    (authenticator,) = made.authenticators
    header = await made.key(boards=("posts",), rate=5.0)
    other = await made.key("other")
    await authenticator.open()
    producer = authenticator.identify(header, CLIENT)
    assert (producer.id, producer.rate, producer.rate_key) == ("shop", 5.0, "shop")
    assert producer.boards == BoardScope.of(("posts",))
    assert result(authenticator, None) == "credentials_required"
    for wrong in (
        b"", b"Bearer", b"Bearer shop", b"Bearer shop.", b"Basic " + header[7:], header + b"x", header[:-1],
        header.replace(b"shop", b"other"), header.replace(b"shop", b"nobody"), other.replace(b"other", b"shop"),
    ):  # fmt: skip
        assert result(authenticator, wrong) == "credentials_invalid"
    await made.client.aclose()


@pytest.mark.parametrize("changes", [{"host": "192.0.2.1"}, {"host": "example.test"}])
async def test_a_public_server_requires_an_api_key(any_store: str, changes: dict[str, Any]) -> None:
    """While the store has no API key, a public server that is not open admits nobody."""
    async with running(any_store, **changes) as made:
        assert result(made.authenticators[0], None) == "credentials_required"
    async with running(any_store, open=True, **changes) as made:
        assert made.authenticators[0].identify(None, CLIENT).id == ""


async def test_an_open_server_checks_a_given_api_key(any_store: str) -> None:
    """A request without an API key is anonymous. A request with a wrong API key is refused."""
    async with running(any_store, open=True) as made:
        header = await made.key()
        await made.authenticators[0].open()
        assert made.authenticators[0].identify(None, CLIENT).id == ""
        assert made.authenticators[0].identify(header, CLIENT).id == "shop"
        assert result(made.authenticators[0], header + b"x") == "credentials_invalid"


@pytest.mark.alone
@pytest.mark.slow
async def test_a_revoked_api_key_is_refused_everywhere_within_five_seconds(any_store: str) -> None:
    """Both authenticators then have a higher `generation`, which invalidates cached results."""
    async with running(any_store, authenticators=2) as made:
        header = await made.key()

        async def known() -> bool:
            return all(isinstance(result(authenticator, header), Principal) for authenticator in made.authenticators)

        await eventually(known)
        generations = [authenticator.generation for authenticator in made.authenticators]
        await made.producers.revoke("shop")
        revoked = time.monotonic()

        async def refused() -> bool:
            return all(result(authenticator, header) == "credentials_invalid" for authenticator in made.authenticators)

        await eventually(refused, 5)
        assert time.monotonic() - revoked < 5
        assert all(
            authenticator.generation > before
            for authenticator, before in zip(made.authenticators, generations, strict=True)
        )
        assert all(result(authenticator, None) == "credentials_required" for authenticator in made.authenticators)


async def test_both_secrets_work_while_a_producer_rotates_its_key(any_store: str) -> None:
    """When the first secret is revoked, the second still works."""
    async with running(any_store) as made:
        (authenticator,) = made.authenticators
        old, new = await made.key(), await made.key()
        await authenticator.open()
        assert [result(authenticator, header) == authenticator.identify(new, CLIENT) for header in (old, new)] == [
            True,
            True,
        ]
        record = (await made.producers.load()).records["shop"]
        await made.producers.revoke("shop", record.secrets[0].fingerprint)
        await authenticator.open()
        assert result(authenticator, old) == "credentials_invalid"
        assert authenticator.identify(new, CLIENT).id == "shop"


async def test_after_the_first_api_key_one_is_always_required(any_store: str) -> None:
    """An API key stays required after the last one is revoked, after a restart, and after the store lost them all."""
    async with running(any_store) as made:
        await made.key()
        await made.producers.revoke("shop")
        await made.authenticators[0].open()
        assert result(made.authenticators[0], None) == "credentials_required"
        again = Authenticator(made.client, made.authenticators[0]._settings)
        await again.open()
        assert result(again, None) == "credentials_required"
        await made.client.delete(made.producers.key)
        await made.authenticators[0].open()
        assert result(made.authenticators[0], None) == "credentials_required"


async def test_nobody_is_admitted_before_the_first_read(valkey_url: str) -> None:
    """The server does not know yet whether API keys are required."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    authenticator = Authenticator(client, settings)
    assert (result(authenticator, None), result(authenticator, b"Bearer a.b")) == ("away", "away")
    await client.aclose()


@pytest.mark.alone
@pytest.mark.fault
async def test_old_data_admits_nobody_while_the_store_is_frozen(own_store: StoreProcess) -> None:
    """An API key is valid for as long as a write waits for the store. Then, cached results become invalid.

    One line is logged.
    """
    deadline = 6.0
    async with running(own_store.url, write_deadline=deadline) as made:
        (authenticator,) = made.authenticators
        header = await made.key()
        await authenticator.open()
        generation = authenticator.generation
        with capture_logs() as logs:
            with own_store.frozen():
                frozen = time.monotonic()
                assert authenticator.identify(header, CLIENT).id == "shop"

                async def is_newer() -> bool:
                    return authenticator.generation > generation

                await eventually(is_newer, 3 * deadline)
                assert time.monotonic() - frozen > deadline
                assert result(authenticator, header) == "away"
                assert result(authenticator, None) == "away"

            async def back() -> bool:
                return isinstance(result(authenticator, header), Principal)

            await eventually(back)
        lines = [line for line in logs if line["event"] == "can't read the API keys"]
        assert len(lines) == 1
        assert header.decode().partition(".")[2] not in str(logs)


async def test_no_result_outlives_a_timer_that_fires_early(valkey_url: str) -> None:
    """The timers of uvloop fire up to a millisecond early. A result from this millisecond would stay in caches."""
    async with running(valkey_url) as made:
        (authenticator,) = made.authenticators
        header = await made.key()
        await authenticator.open()
        generation = authenticator.generation
        authenticator._expire()
        assert (authenticator.generation > generation, result(authenticator, header)) == (True, "away")
        await authenticator.open()
        assert isinstance(result(authenticator, header), Principal)


async def test_a_process_can_start_before_its_store(own_store: StoreProcess) -> None:
    """The process reads the producers as soon as the store answers."""
    settings = fresh_settings(own_store.url)
    own_store.kill()
    client = connect(own_store.url, settings)
    authenticator = Authenticator(client, settings)
    with pytest.raises(StoreUnavailableError):
        await authenticator.open()
    running = asyncio.create_task(authenticator.run())
    own_store.start()

    async def admitted() -> bool:
        return isinstance(result(authenticator, None), Principal)

    await eventually(admitted)
    await stop(running)
    await client.aclose()


async def test_an_api_key_expires_by_itself(any_store: str) -> None:
    """The key expires without a write to the store.

    Readers with this key then open nothing, and the metric has the next expiry.
    """
    async with running(any_store) as made:
        (authenticator,) = made.authenticators
        ends = int(time.time()) + 2
        header = await made.key(expires=ends, verbs=("post", "read"))
        lasting = await made.key("lasting", expires=ends + 1000)
        await authenticator.open()
        reader = authenticator.reader(header)
        assert result(authenticator, header) == authenticator.identify(header, CLIENT)
        assert authenticator._read.next_end == ends

        async def ended() -> bool:
            return result(authenticator, header) == "credentials_invalid"

        await eventually(ended)
        assert time.time() >= ends
        assert "posts" not in reader.opens
        assert isinstance(result(authenticator, lasting), Principal)
        assert authenticator._read.next_end == ends + 1000


async def test_the_last_use_of_a_secret_is_noted(any_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note has the fingerprint of the secret. A wrong secret leaves no note.

    Cached results expire, so that the next use is noted.
    """
    monkeypatch.setattr("live.auth.authenticator._NOTING", 0.0)
    monkeypatch.setattr("live.auth.authenticator._PAUSE", 0.01)
    async with running(any_store) as made:
        (authenticator,) = made.authenticators
        header, _ = await made.key(), await made.key("unused")
        await authenticator.open()
        authenticator.identify(header, CLIENT)
        authenticator.note_refusal("shop")
        assert result(authenticator, header + b"x") == "credentials_invalid"
        generation = authenticator.generation
        records = (await made.producers.load()).records

        async def noted() -> Any:
            return await made.producers.last_uses()

        uses = await eventually(noted)
        fingerprint = records["shop"].secrets[0].fingerprint
        assert set(uses) == {fingerprint, refused_name("shop")}
        assert abs(uses[fingerprint] - time.time()) < 60
        assert authenticator.generation > generation


async def test_uses_that_can_not_be_noted_are_noted_later(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a while, the store refuses to count the refusals of `shop`, and the log says so. Each refusal counts once."""
    monkeypatch.setattr("live.auth.authenticator._NOTING", 0.0)
    monkeypatch.setattr("live.auth.authenticator._PAUSE", 0.01)
    with capture_logs() as logs:
        async with running(valkey_url) as made:
            (authenticator,) = made.authenticators
            header, client = await made.key(), made.client
            await authenticator.open()
            used = made.producers._used
            await client.call(used, "HSET", used, refused_name("shop"), "no number")
            authenticator.identify(header, CLIENT)
            for name in ("shop", "other", "shop"):
                authenticator.note_refusal(name)

            async def count_of(name: str) -> Any:
                return await client.call(used, "HGET", used, refused_name(name))

            assert await eventually(lambda: count_of("other")) == b"1"

            async def is_left() -> bool:
                return tuple(authenticator._uses) == (set(), {"shop": 2})

            await eventually(is_left)
            await client.call(used, "HDEL", used, refused_name("shop"))
            assert await eventually(lambda: count_of("shop")) == b"2"
            assert await count_of("other") == b"1"
    (said,) = {entry["event"] for entry in logs}
    assert said == "can't note the uses of API keys"


def test_a_secret_matches_only_its_own_digest() -> None:
    """The matching digest may be at any position."""
    assert matches((OLD, NEW), b"old")
    assert matches((OLD, NEW), b"new")
    assert not matches((OLD, NEW), b"other")
    assert not matches(NO_DIGESTS, b"")
    assert not matches(NO_DIGESTS, b"old")


class Watched(list[bytes]):
    """Digests that count how many of them were compared."""

    looked = 0

    def __iter__(self) -> Iterator[bytes]:
        for digest in super().__iter__():
            self.looked += 1
            yield digest


@pytest.mark.parametrize("digests", [(OLD, NEW), NO_DIGESTS, with_secret(None, "shop", Scope(), OLD, 100).digests])
@pytest.mark.parametrize("secret", [b"old", b"new", b"other", b""])
def test_every_digest_is_compared(digests: tuple[bytes, ...], secret: bytes) -> None:
    """There are as many comparisons after a match at the first digest, without a match, and for an unknown producer."""
    watched = Watched(digests)
    matches(watched, secret)
    assert watched.looked == MOST_SECRETS


def test_the_comparison_takes_constant_time() -> None:
    """`hmac.compare_digest` refuses to compare text with bytes, while `==` would return False. So text must raise."""
    with pytest.raises(TypeError):
        matches(["no bytes"], b"old")  # type: ignore[list-item]


@pytest.mark.alone
def test_the_time_does_not_reveal_whether_a_producer_exists() -> None:
    """Comparing takes as long for an unknown producer as for a known producer, as far as a busy machine allows."""

    def shortest(digests: tuple[bytes, ...], secret: bytes) -> float:
        times = []
        for _ in range(2000):
            started = time.perf_counter()
            matches(digests, secret)
            times.append(time.perf_counter() - started)
        return min(times)

    nobody, somebody = shortest(NO_DIGESTS, b"x" * 43), shortest((OLD, NEW), b"x" * 43)
    assert 0.5 < nobody / somebody < 2
