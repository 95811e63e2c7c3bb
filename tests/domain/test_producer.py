"""Producers and API keys: their form, what they identify, and what they permit."""

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.domain import producer as producers
from live.domain.producer import (
    NO_DIGESTS,
    Scope,
    StoredProducer,
    anonymous,
    digest_of,
    new_secret,
    parse_bearer,
    with_secret,
    without_secret,
)
from live.errors import ProblemError, SetupError
from live.http.networks import network_of

OLD, NEW = digest_of(b"old"), digest_of(b"new")


def record(**scope: Any) -> StoredProducer:
    """A producer with one secret."""
    return with_secret(None, "shop", Scope(**scope), OLD, 100)


def test_secrets_are_long_and_unique() -> None:
    """A secret has 256 bits, in characters that are valid in a header."""
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
def test_an_authorization_header_is_parsed(header: bytes, parsed: tuple[str, bytes] | None) -> None:
    """A header has the scheme in any case, an id, a dot and a secret. Anything else is invalid."""
    assert parse_bearer(header) == parsed


@given(st.binary(max_size=400))
def test_any_header_can_be_parsed(header: bytes) -> None:
    """No bytes raise an exception."""
    parse_bearer(header)
    parse_bearer(b"Bearer " + header)


def test_a_producer_has_at_most_two_secrets() -> None:
    """The second secret is for changing the API key. A third secret is refused, with advice."""
    both = with_secret(record(), "shop", Scope(), NEW, 200)
    assert [secret.digest for secret in both.secrets] == [OLD, NEW] == list(both.digests)
    assert [secret.created for secret in both.secrets] == [100, 200]
    with pytest.raises(SetupError, match=r"has 2 valid secrets \(\w{8}, \w{8}\): revoke one first"):
        with_secret(both, "shop", Scope(), digest_of(b"third"), 300)


def test_a_secret_is_revoked_by_its_fingerprint() -> None:
    """The other secret stays valid. When its last secret is revoked, the producer counts as revoked.

    Its record stays, and can get new secrets.
    """
    both = with_secret(record(), "shop", Scope(), NEW, 200)
    kept = without_secret(both, "shop", both.secrets[0].fingerprint, 300)
    assert ([secret.digest for secret in kept.secrets], kept.revoked) == ([NEW], None)
    revoked = without_secret(kept, "shop", kept.secrets[0].fingerprint, 400)
    assert (revoked.secrets, revoked.revoked, revoked.digests) == ((), 400, NO_DIGESTS)
    assert without_secret(revoked, "shop", None, 500).revoked == 400
    back = with_secret(revoked, "shop", Scope(), NEW, 600)
    assert (len(back.secrets), back.revoked, back.created) == (1, None, 100)


def test_revoking_an_unknown_secret_is_refused() -> None:
    """Revoking a secret of an unknown producer is refused too."""
    with pytest.raises(SetupError, match="there is no producer 'shop'"):
        without_secret(None, "shop", None, 1)
    with pytest.raises(SetupError, match=f"no secret 'x'; its valid secrets: {record().secrets[0].fingerprint}"):
        without_secret(record(), "shop", "x", 1)


@pytest.mark.parametrize("producer", ["", "Shop", "-a", "a.b", "a" * 65, "a\n", "é", ":version"])
def test_a_producer_id_has_a_restricted_form(producer: str) -> None:
    """The id is used in headers, store keys and file names."""
    with pytest.raises(SetupError, match="is not an id"):
        with_secret(None, producer, Scope(), OLD, 1)


@pytest.mark.parametrize("producer", ["server", "anonymous"])
def test_a_name_of_the_audit_log_is_not_for_api_keys(producer: str) -> None:
    """The audit log calls the server and administrators without an API key like this."""
    with pytest.raises(SetupError, match="names no API key: the audit log uses it"):
        with_secret(None, producer, Scope(), OLD, 1)


def test_a_new_scope_replaces_given_fields() -> None:
    """Fields that are not given stay."""
    first = record(boards=("a", "b"), rate=5.0)
    second = with_secret(first, "shop", Scope(rate=7.0, verbs=("admin",)), NEW, 2)
    assert (second.boards, second.rate, second.verbs) == (("a", "b"), 7.0, ("admin",))
    assert with_secret(first, "shop", Scope(boards=None), NEW, 2).boards is None


def test_a_fingerprint_does_not_reveal_the_digest() -> None:
    """The fingerprint is part of neither the digest nor the secret."""
    secret = record().secrets[0]
    assert len(secret.fingerprint) == 8
    assert secret.fingerprint not in OLD.hex()
    assert secret.fingerprint not in hashlib.sha256(OLD).hexdigest()


def test_a_record_can_be_stored() -> None:
    """A record is stored as JSON."""
    full = with_secret(record(boards=("a",), rate=1.5, burst=3), "shop", Scope(), NEW, 2)
    assert msgspec.json.decode(msgspec.json.encode(full), type=StoredProducer) == full


@pytest.mark.parametrize(
    ("scope", "rate", "burst"),
    [({}, 100.0, 200), ({"rate": 10.0}, 10.0, 20), ({"rate": 0.1}, 0.1, 1), ({"burst": 3}, 100.0, 3),
     ({"rate": 0.0}, 0.0, 1), ({"rate": 10.0, "burst": 1}, 10.0, 1)],
)  # fmt: skip
def test_a_producers_own_rate_sets_a_burst_of_two_seconds(scope: dict[str, Any], rate: float, burst: int) -> None:
    """If the producer has its own burst, this burst is used instead. Without a rate, the default applies."""
    producer = record(**scope).producer(100.0)
    assert (producer.id, producer.rate, producer.burst, producer.rate_key) == ("shop", rate, burst, "shop")


def test_an_api_key_permits_its_boards_and_verbs() -> None:
    """Events for other boards are refused one by one. Requests with other verbs are refused as a whole."""
    limited = record(boards=("a",)).producer(1)
    assert (limited.refusal("a"), limited.refusal("b")) == (None, "board_forbidden")
    assert record().producer(1).refusal("b") is None
    limited.require("post")
    with pytest.raises(ProblemError) as caught:
        limited.require("admin")
    assert (caught.value.code, caught.value.detail) == ("scope_forbidden", "the API key permits post, not admin")


def test_an_anonymous_producer_is_identified_by_its_address() -> None:
    """An IPv6 address counts as its /64 network. The store key contains only a digest."""
    keys = {
        name: anonymous(network_of(address), 1).rate_key
        for name, address in {
            "a": "192.0.2.1", "b": "192.0.2.2", "mapped": "::ffff:192.0.2.1", "mapped too": "::ffff:192.0.2.2",
            "site": "2001:db8::1", "same site": "2001:db8::ffff:2", "other site": "2001:db8:0:1::1",
            "none": "", "strange": "}{:\r\n" * 100,
        }.items()
    }  # fmt: skip
    assert keys["site"] == keys["same site"]
    assert (keys["a"], keys["b"]) == (keys["mapped"], keys["mapped too"])
    assert len(set(keys.values())) == len(keys) - 3
    for key in keys.values():
        assert set(key.removeprefix("anonymous:")) <= set("0123456789abcdef")
    assert not {key for key in keys.values() if producers.PRODUCER_ID.fullmatch(key)}
    producer = anonymous("192.0.2.1", 3)
    assert (producer.id, producer.boards, producer.rate, producer.burst) == ("", None, 3, 6)
    assert producer.verbs == {"post"}
