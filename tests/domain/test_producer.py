"""Producers: what a key is, what it proves, and what it is for."""

import hashlib
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.domain import producer as producers
from live.domain.producer import (
    NO_DIGESTS,
    Record,
    Scope,
    anonymous,
    digest_of,
    matches,
    new_secret,
    parse_bearer,
    with_secret,
    without_secret,
)
from live.errors import ProblemError, SetupError

OLD, NEW = digest_of(b"old"), digest_of(b"new")


def record(**scope: Any) -> Record:
    """A producer with one secret."""
    return with_secret(None, "shop", Scope(**scope), OLD, 100)


def test_a_secret_is_long_and_never_twice_the_same() -> None:
    """256 bits, in characters that a header takes as they are."""
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    for secret in made:
        assert len(secret) == 43
        assert parse_bearer(f"Bearer a.{secret}".encode()) == ("a", secret.encode())


@pytest.mark.parametrize(
    ("header", "parsed"),
    [
        (b"Bearer shop.s", ("shop", b"s")),
        (b"bearer shop.s", ("shop", b"s")),
        (b"BEARER   shop-1_a.a.b", ("shop-1_a", b"a.b")),
        (b"Bearer " + b"a" * 64 + b"." + b"s" * 256, ("a" * 64, b"s" * 256)),
        (b"Bearer " + b"a" * 65 + b".s", None),
        (b"Bearer a." + b"s" * 257, None),
        (b"Bearer Shop.s", None),
        (b"Bearer shop", None),
        (b"Bearer .s", None),
        (b"Bearer shop.", None),
        (b"Bearer shop.s\n", None),
        (b"Bearer shop.s s", None),
        (b"Bearer shop.\xe9", None),
        (b"Basic shop.s", None),
        (b"Bearershop.s", None),
        (b"", None),
    ],
)
def test_what_a_header_says(header: bytes, parsed: tuple[str, bytes] | None) -> None:
    """Scheme in any case, an id, a dot, a secret; anything else says nothing."""
    assert parse_bearer(header) == parsed


@given(st.binary(max_size=400))
def test_any_header_is_taken_apart_or_not(header: bytes) -> None:
    """Whatever bytes come, no exception does."""
    parse_bearer(header)
    parse_bearer(b"Bearer " + header)


def test_a_secret_matches_its_own_digest_only() -> None:
    """In whichever place it stands."""
    assert matches((OLD, NEW), b"old")
    assert matches((OLD, NEW), b"new")
    assert not matches((OLD, NEW), b"other")
    assert not matches(NO_DIGESTS, b"")
    assert not matches(NO_DIGESTS, b"old")


class Watched(list[bytes]):
    """Digests that know how many of them were looked at."""

    looked = 0

    def __iter__(self) -> Iterator[bytes]:
        for digest in super().__iter__():
            self.looked += 1
            yield digest


@pytest.mark.parametrize("digests", [(OLD, NEW), NO_DIGESTS, record().digests])
@pytest.mark.parametrize("secret", [b"old", b"new", b"other", b""])
def test_every_digest_is_compared(digests: tuple[bytes, ...], secret: bytes) -> None:
    """As many for a hit in the first place as for a miss, and for a producer that does not exist."""
    watched = Watched(digests)
    matches(watched, secret)
    assert watched.looked == producers.MOST_SECRETS


def test_the_comparison_is_the_one_in_constant_time() -> None:
    """`==` would say of text that it is no digest; `hmac.compare_digest` does not compare it with bytes."""
    with pytest.raises(TypeError):
        matches(["no bytes"], b"old")  # type: ignore[list-item]


def test_the_time_tells_nothing_about_the_producer() -> None:
    """A match against nobody takes as long as one against a producer, within what a busy machine allows."""

    def shortest(digests: tuple[bytes, ...], secret: bytes) -> float:
        times = []
        for _ in range(2000):
            started = time.perf_counter()
            matches(digests, secret)
            times.append(time.perf_counter() - started)
        return min(times)

    nobody, somebody = shortest(NO_DIGESTS, b"x" * 43), shortest((OLD, NEW), b"x" * 43)
    assert 0.5 < nobody / somebody < 2


def test_a_producer_has_two_secrets_at_most() -> None:
    """The second is there to change over; a third is refused, with what to do."""
    both = with_secret(record(), "shop", Scope(), NEW, 200)
    assert [secret.digest for secret in both.secrets] == [OLD, NEW] == list(both.digests)
    assert [secret.created for secret in both.secrets] == [100, 200]
    with pytest.raises(SetupError, match=r"has 2 valid secrets \(\w{8}, \w{8}\): revoke one first"):
        with_secret(both, "shop", Scope(), digest_of(b"third"), 300)


def test_one_secret_is_revoked_by_its_fingerprint() -> None:
    """The other stays; when the last one goes, the producer is revoked; it stays on record and may return."""
    both = with_secret(record(), "shop", Scope(), NEW, 200)
    kept = without_secret(both, "shop", both.secrets[0].fingerprint, 300)
    assert ([secret.digest for secret in kept.secrets], kept.revoked) == ([NEW], None)
    out = without_secret(kept, "shop", kept.secrets[0].fingerprint, 400)
    assert (out.secrets, out.revoked, out.digests) == ((), 400, NO_DIGESTS)
    assert without_secret(out, "shop", None, 500).revoked == 400
    back = with_secret(out, "shop", Scope(), NEW, 600)
    assert (len(back.secrets), back.revoked, back.created) == (1, None, 100)


def test_what_can_not_be_revoked_is_told() -> None:
    """An unknown producer, an unknown fingerprint."""
    with pytest.raises(SetupError, match="there is no producer 'shop'"):
        without_secret(None, "shop", None, 1)
    with pytest.raises(SetupError, match=f"no secret 'x'; its valid secrets: {record().secrets[0].fingerprint}"):
        without_secret(record(), "shop", "x", 1)


@pytest.mark.parametrize("producer", ["", "Shop", "-a", "a.b", "a" * 65, "a\n", "é", ":version"])
def test_an_id_is_plain(producer: str) -> None:
    """It stands in headers, in keys of the store and in file names."""
    with pytest.raises(SetupError, match="does not match"):
        with_secret(None, producer, Scope(), OLD, 1)


def test_what_is_said_replaces_what_was_said_before() -> None:
    """What is not said stays."""
    first = record(boards=("a", "b"), rate=5.0)
    second = with_secret(first, "shop", Scope(rate=7.0, verbs=("admin",)), NEW, 2)
    assert (second.boards, second.rate, second.verbs) == (("a", "b"), 7.0, ("admin",))
    assert with_secret(first, "shop", Scope(boards=None), NEW, 2).boards is None


def test_a_fingerprint_tells_no_digest() -> None:
    """It is no part of what is kept, nor of the secret."""
    secret = record().secrets[0]
    assert len(secret.fingerprint) == 8
    assert secret.fingerprint not in OLD.hex()
    assert secret.fingerprint not in hashlib.sha256(OLD).hexdigest()


def test_a_record_survives_the_store() -> None:
    """As JSON and back."""
    full = with_secret(record(boards=("a",), rate=1.5, burst=3), "shop", Scope(), NEW, 2)
    assert msgspec.json.decode(msgspec.json.encode(full), type=Record) == full


@pytest.mark.parametrize(
    ("scope", "rate", "burst"),
    [({}, 100.0, 7), ({"rate": 10.0}, 10.0, 20), ({"rate": 0.1}, 0.1, 1), ({"burst": 3}, 100.0, 3),
     ({"rate": 0.0}, 0.0, 7), ({"rate": 10.0, "burst": 1}, 10.0, 1)],
)  # fmt: skip
def test_a_rate_of_its_own_brings_a_burst_of_two_seconds(scope: dict[str, Any], rate: float, burst: int) -> None:
    """Unless it has its own burst; without either it has the defaults."""
    producer = record(**scope).producer(100.0, 7)
    assert (producer.id, producer.rate, producer.burst, producer.rate_key) == ("shop", rate, burst, "shop")


def test_a_key_is_for_its_boards_and_verbs() -> None:
    """Others are refused: a board event by event, a verb as a whole."""
    limited = record(boards=("a",)).producer(1, 1)
    assert (limited.refusal("a"), limited.refusal("b")) == (None, "board_forbidden")
    assert record().producer(1, 1).refusal("b") is None
    limited.require("post")
    with pytest.raises(ProblemError) as caught:
        limited.require("admin")
    assert (caught.value.code, caught.value.detail) == ("scope_forbidden", "the API key permits post, not admin")


def test_an_anonymous_producer_is_its_address() -> None:
    """In IPv6 its site; nothing of it stands in the key as it came."""
    keys = {
        name: anonymous(address, 1, 1).rate_key
        for name, address in {
            "a": "192.0.2.1", "b": "192.0.2.2", "mapped": "::ffff:192.0.2.1", "mapped too": "::ffff:192.0.2.2",
            "site": "2001:db8::1", "same site": "2001:db8::ffff:2", "other site": "2001:db8:0:1::1",
            "none": "", "strange": "}{:\r\n" * 100,
        }.items()
    }  # fmt: skip
    assert keys["site"] == keys["same site"]
    assert len(set(keys.values())) == len(keys) - 1
    for key in keys.values():
        assert set(key.removeprefix("anonymous:")) <= set("0123456789abcdef")
    assert not {key for key in keys.values() if producers.PRODUCER_ID.fullmatch(key)}
    producer = anonymous("192.0.2.1", 3, 4)
    assert (producer.id, producer.boards, producer.rate, producer.burst) == ("", None, 3, 4)
    assert producer.verbs == {"post"}
