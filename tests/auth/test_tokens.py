"""Viewer tokens: what they open, and which are refused, such as tokens that libraries once accepted by mistake."""

import asyncio
import base64
import hmac
import json
import math
import ssl
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from live.auth import tokens as token_module
from live.auth.tokens import KeySet, Tokens, make_tokens
from live.domain.reader import NO_BOARDS
from live.errors import TOKEN_EXPIRED, SetupError
from live.settings import Settings, TokenSecret, load_settings
from tests.harness.certificate import make_certificate
from tests.harness.settings import as_environment
from tests.harness.tasks import stop
from tests.harness.tokens import SECRET, make_token
from tests.harness.waiting import eventually

EC: Final = ec.generate_private_key(ec.SECP256R1())
ED: Final = ed25519.Ed25519PrivateKey.generate()
RSA: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
SMALL: Final = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 - it is refused
PEM: Final = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
KEYS: Final[Mapping[str, tuple[str, Any]]] = {"e": ("ES256", EC), "d": ("EdDSA", ED), "r": ("RS256", RSA)}


def public(kid: str, **more: str) -> dict[str, Any]:
    """The public key with this name, as a JSON Web Key."""
    algorithm, key = KEYS[kid]
    found: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**found, "kid": kid, **more}


def key_set(folder: Path, *keys: Mapping[str, Any]) -> str:
    """A file with a key set."""
    path = folder / "keys.json"
    path.write_text(json.dumps({"keys": keys or [public(kid) for kid in KEYS]}))
    return str(path)


def tokens_of(**changes: Any) -> Tokens:
    """Make the object that checks tokens, by default with the secret of the tests."""
    made = make_tokens(Settings(**({"token_secret": TokenSecret(SECRET)} | changes)))
    assert made is not None
    return made


def fault(tokens: Tokens, token: str | bytes) -> str:
    """Return why a token is refused, or an empty text if the token opens something."""
    reader = tokens.reader(token.encode() if isinstance(token, str) else token)
    assert bool(reader.fault) is ("staff" not in reader.opens)
    return reader.fault


def part(value: object) -> str:
    """Encode bytes, or a value as JSON, as one of the parts of a token."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(header: object, claims: object, secret: str = SECRET, digest: str = "sha256") -> str:
    """A token with any header and claims, signed with a secret."""
    text = f"{part(header)}.{part(claims)}"
    return f"{text}.{part(hmac.digest(secret.encode(), text.encode(), digest))}"


ISSUER: Final = "https://login.example"
GOOD: Final = {"exp": int(time.time()) + 3600, "aud": "live-board", "boards": ["staff"]}
HS256: Final = {"alg": "HS256", "typ": "JWT"}


def mistakes() -> Iterator[tuple[str, str, str]]:
    """Yield tokens that some library or server once accepted by mistake, as name, checker and token."""
    one = make_token("staff")
    head, body, signature = one.split(".")
    es, rs = (jwt.encode(GOOD, KEYS[kid][1], KEYS[kid][0], {"kid": kid}) for kid in ("e", "r"))
    unsigned = part(GOOD)
    for none in ("none", "None", "NONE", "nOnE"):
        yield f"`alg` is {none}", "secret", f"{part({'alg': none})}.{unsigned}."
        yield f"`alg` is {none}, for a key set", "keys", f"{part({'alg': none, 'kid': 'r'})}.{unsigned}.{signature}"
    yield "no signature", "secret", f"{head}.{body}."
    yield "no `alg`", "secret", signed({"typ": "JWT"}, GOOD)
    yield "`alg` is a list", "secret", signed({"alg": ["HS256"]}, GOOD)
    yield "`alg` is null", "secret", signed({"alg": None}, GOOD)
    yield "another HMAC with the same secret", "secret", signed({"alg": "HS512"}, GOOD, digest="sha512")
    yield "a public key as the secret of HMAC", "keys", signed({"alg": "HS256", "kid": "r"}, GOOD, PEM)
    yield (
        "the bytes of a public key as the secret",
        "keys",
        signed({"alg": "HS256", "kid": "d"}, GOOD, public("d")["x"]),
    )
    yield "the key in the header", "keys", signed({"alg": "HS256", "jwk": {"kty": "oct", "k": part(b"x" * 32)}}, GOOD)
    yield "an address of keys in the header", "keys", signed({"alg": "HS256", "jku": "https://evil.example/"}, GOOD)
    yield "a certificate in the header", "keys", signed({"alg": "HS256", "kid": "r", "x5c": [part(b"x")]}, GOOD)
    yield "an unknown `kid`", "keys", jwt.encode(GOOD, EC, "ES256", {"kid": "another"})
    yield "no `kid` where there are several keys", "keys", jwt.encode(GOOD, EC, "ES256")
    yield "a `kid` that is a path", "keys", jwt.encode(GOOD, EC, "ES256", {"kid": "../../dev/null"})
    yield "a `kid` that is no text", "keys", signed({"alg": "HS256", "kid": ["e"]}, GOOD)
    yield "the `kid` of another key", "keys", jwt.encode(GOOD, EC, "ES256", {"kid": "r"})
    yield "an elliptic-curve signature of zeros", "keys", f"{es.rpartition('.')[0]}.{part(bytes(64))}"
    yield "another RSA padding", "keys", jwt.encode(GOOD, RSA, "PS256", {"kid": "r"})
    yield "a longer RSA digest", "keys", jwt.encode(GOOD, RSA, "RS512", {"kid": "r"})
    yield "the signature of another token", "keys", f"{es.rpartition('.')[0]}.{rs.rpartition('.')[2]}"
    yield "`crit`", "secret", signed({**HS256, "crit": ["x"], "x": 1}, GOOD)
    yield "an empty `crit`", "secret", signed({**HS256, "crit": []}, GOOD)
    yield "`b64` without `crit`", "secret", signed({**HS256, "b64": False}, GOOD)
    yield "a payload that is not base64", "secret", signed({**HS256, "b64": False, "crit": ["b64"]}, GOOD)
    yield "a claim in the header", "secret", signed({**HS256, **GOOD}, {})
    yield "another secret", "secret", make_token("staff", secret=SECRET + "x")
    yield "an empty secret", "secret", signed(HS256, GOOD, "")
    yield "a changed payload", "secret", f"{head}.{part({**GOOD, 'boards': ['*']})}.{signature}"
    yield "two payloads", "secret", f"{one}.{body}"
    yield "encrypted and not signed", "secret", f"{part({'alg': 'dir', 'enc': 'A256GCM'})}..{part(b'x')}.{part(b'x')}."
    yield "a header that nests deeply", "secret", f"{part(b'[' * 2000)}.{body}.{signature}"
    yield from wrong_claims()


def wrong_claims() -> Iterator[tuple[str, str, str]]:
    """Yield tokens with a right signature and wrong claims."""
    yield "no `exp`", "secret", make_token("staff", exp=None)
    yield "`exp` as text", "secret", signed(HS256, {**GOOD, "exp": str(GOOD["exp"])})
    yield "`exp` without end", "secret", signed(HS256, {**GOOD, "exp": float("inf")})
    yield "`exp` that is no number", "secret", signed(HS256, {**GOOD, "exp": float("nan")})
    yield "`exp` that is true", "secret", signed(HS256, {**GOOD, "exp": True})
    yield "`exp` below zero", "secret", signed(HS256, {**GOOD, "exp": -1})
    yield "`exp` that is a list", "secret", signed(HS256, {**GOOD, "exp": []})
    yield "`key` with half of a character", "secret", signed(HS256, {**GOOD, "key": "\ud800"})
    yield "`sub` with half of a character", "secret", signed(HS256, {**GOOD, "sub": "\ud800", "likes": ["staff"]})
    yield "a token that expired this second", "secret", make_token("staff", ends=0)
    yield "`exp` too far ahead", "secret", make_token("staff", ends=90_000)
    yield "`nbf` tomorrow", "secret", make_token("staff", nbf=time.time() + 90_000)
    yield "`iat` tomorrow", "secret", make_token("staff", iat=time.time() + 90_000)
    yield "no audience", "secret", make_token("staff", aud=None)
    yield "a token for another server", "secret", make_token("staff", aud="shop")
    yield "an audience that only begins like ours", "secret", make_token("staff", aud="live-board.example")
    yield "an audience that is an object", "secret", signed(HS256, {**GOOD, "aud": {"live-board": True}})
    yield "no issuer", "issuer", make_token("staff")
    yield "another issuer", "issuer", make_token("staff", iss="https://login.example.evil")
    yield "no `iat` after all tokens were revoked", "since", make_token("staff")
    yield "a token signed before all tokens were revoked", "since", make_token("staff", iat=1000)
    yield "`boards` as text", "secret", signed(HS256, {**GOOD, "boards": "staff"})
    yield "`boards` with numbers", "secret", signed(HS256, {**GOOD, "boards": ["staff", 1]})
    yield "a member that can't exist", "secret", make_token("staff", key="a\nb")
    yield "an unknown claim that restricts the reader", "secret", make_token("staff", circle=["a"])
    yield "claims that are a list", "secret", signed(HS256, [GOOD])
    yield "claims that nest deeply", "secret", signed(HS256, b"[" * 2000)
    yield "a token that is too long", "secret", make_token("staff", more="x" * 4000)


def check_mistakes(folder: Path) -> None:
    """Check that every token of `mistakes` and `wrong_claims` is refused."""
    checkers = {
        "secret": tokens_of(),
        "keys": tokens_of(token_secret=TokenSecret(), token_jwks=key_set(folder)),
        "issuer": tokens_of(token_issuer=ISSUER),
        "since": tokens_of(tokens_since=int(time.time() - 60)),
    }
    taken = [mistake for mistake, name, token in mistakes() if not fault(checkers[name], token)]
    assert taken == []


async def test_mistakes_of_libraries_are_not_ours(tmp_path: Path) -> None:
    """All tokens of `mistakes` are refused: there are more than forty, each with another mistake."""
    assert len({mistake for mistake, _, _ in mistakes()}) > 40
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some keys of these tests are short, and the library warns of them
        check_mistakes(tmp_path)


async def test_good_tokens_open_their_boards(tmp_path: Path) -> None:
    """Tokens are signed with a secret, or with each kind of key. Each token has one reader, cached by its digest."""
    tokens = tokens_of(token_issuer=ISSUER, tokens_since=int(time.time() - 60))
    token = make_token("staff", "acme-*", key="ann", iss=ISSUER, iat=int(time.time()) + 5, nbf=time.time()).encode()
    reader = tokens.reader(token)
    assert [board in reader.opens for board in ("staff", "acme-june", "acme", "other")] == [True, True, False, False]
    assert (reader.member, reader.fault, reader.sees_more) == ("ann", "", True)
    assert tokens.reader(token) is reader
    tokens = tokens_of(token_secret=TokenSecret(), token_jwks=key_set(tmp_path))
    for kid, (algorithm, key) in KEYS.items():
        assert fault(tokens, jwt.encode(GOOD, key, algorithm, {"kid": kid})) == ""
    single = tokens_of(token_secret=TokenSecret(), token_jwks=key_set(tmp_path, public("e")))
    assert fault(single, jwt.encode(GOOD, EC, "ES256")) == ""


@settings(deadline=None, max_examples=100)
@given(
    token=st.one_of(
        st.binary(max_size=200),
        st.tuples(st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=40)).map(
            lambda parts: ".".join(map(part, parts)).encode()
        ),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(max_size=9) | st.integers(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD, "kid", "alg"]), inner),
            max_leaves=6,
        ).map(lambda claims: signed(HS256, claims).encode()),
    )
)
def test_no_bytes_are_an_error(token: bytes) -> None:
    """For any bytes, there is a reader and no error: a reader that opens boards, or one with a fault."""

    async def ask() -> None:
        tokens_of().reader(token)

    asyncio.run(ask())


_ODD: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 1.5, 2**53, 10**400, math.nan, math.inf, "", "a", "live-board", "staff", "\0", "\ud800",
    "a\udc00", [], ["staff"], ["\ud800"], [None], [[]], {}, {"a": 1}, {"\ud800": []}, int(time.time()) + 60,
)  # fmt: skip
_CLAIMS: Final = ("exp", "iat", "nbf", "aud", "iss", "boards", "likes", "sub", "key", "circle", "jti", "\ud800")
_FIELDS: Final = ("alg", "typ", "kid", "crit", "b64", "jwk", "cty", "\ud800")


async def test_no_odd_claim_is_an_error() -> None:
    """The token is right but for a claim or a field of its header. A refusal has a reason that can be sent."""
    votes = GOOD | {"likes": ["staff"], "sub": "me"}
    tokens = [signed(HS256, votes | {name: value}) for name in _CLAIMS for value in _ODD]
    tokens += [signed(HS256 | {name: value}, GOOD) for name in _FIELDS for value in _ODD]
    for checker in (tokens_of(), tokens_of(token_issuer=ISSUER), tokens_of(tokens_since=1)):
        for token in tokens:
            checker.reader(token.encode()).fault.encode()


async def test_a_token_ends_with_its_second() -> None:
    """When a token expires, its reader opens no board, and `on_ended` is called."""
    tokens, ended = tokens_of(), asyncio.Event()
    tokens.on_ended = ended.set
    token = make_token("staff", ends=1).encode()
    reader, other = tokens.reader(token), tokens.reader(make_token("staff").encode())
    async with asyncio.timeout(60):
        await ended.wait()
    assert (reader.opens, reader.end_code) == (NO_BOARDS, TOKEN_EXPIRED)
    assert "expired" in reader.fault
    assert "staff" in other.opens
    assert "expired" in fault(tokens, token)


async def test_a_key_that_leaves_the_set_ends_its_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token ends when the file no longer has its key. Data that is no key set leaves the last keys valid."""
    monkeypatch.setattr(token_module, "_FILE_PAUSE", 0.01)
    place = key_set(tmp_path)
    tokens = tokens_of(token_secret=TokenSecret(), token_jwks=place)
    kept = tokens.reader(jwt.encode(GOOD, EC, "ES256", {"kid": "e"}).encode())
    gone = tokens.reader(jwt.encode(GOOD, RSA, "RS256", {"kid": "r"}).encode())
    keys = tokens._keys
    assert isinstance(keys, KeySet)
    key_set(tmp_path, {"kty": "RSA"})
    work = asyncio.create_task(tokens.run())
    try:

        async def failed() -> bool:
            return keys._failed

        async def ended() -> bool:
            return "staff" not in gone.opens

        await eventually(failed)
        assert "staff" in gone.opens
        key_set(tmp_path, public("e"), {**public("d"), "kid": "r"})
        await eventually(ended)
    finally:
        await stop(work)
    assert "staff" in kept.opens
    assert "no longer valid" in gone.fault


async def serve_keys(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[asyncio.Server, str]:
    """Start a server whose certificate this process trusts. Return the address of its key set too."""
    certificate = make_certificate(folder)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate.path, certificate.key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=own)
    return server, f"https://localhost:{server.sockets[0].getsockname()[1]}/keys"


async def test_a_key_set_is_fetched_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the request fails, is redirected or returns too much, the last keys stay valid."""
    for name in ("_PAUSE", "_LEAST_PAUSE"):
        monkeypatch.setattr(token_module, name, 0.05)
    first, second = (json.dumps({"keys": [public(kid)]}).encode() for kid in ("e", "d"))
    answers = [(200, first), (500, second), (302, second), (200, second + b" " * (1 << 20)), (200, b"{")]
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        status, body = answers[min(asked, len(answers) - 1)]
        asked += 1
        writer.write(b"HTTP/1.1 %d x\r\nLocation: /keys\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
        with suppress(OSError):
            await writer.drain()
        writer.close()

    server, place = await serve_keys(serve, tmp_path, monkeypatch)
    tokens = tokens_of(token_secret=TokenSecret(), token_jwks=place)
    work = asyncio.create_task(tokens.run())
    one, two = (jwt.encode(GOOD, KEYS[kid][1], KEYS[kid][0], {"kid": kid}).encode() for kid in ("e", "d"))

    async def opens(token: bytes) -> bool:
        return "staff" in tokens.reader(token).opens

    async def failed() -> bool:
        return asked > len(answers)

    try:
        assert not tokens.reader(one).is_sure
        await eventually(lambda: opens(one))
        kept = tokens.reader(one)
        await eventually(failed)
        assert "staff" in kept.opens
        assert not await opens(two)
        answers.append((200, second))
        await eventually(lambda: opens(two))
        assert "staff" not in kept.opens
    finally:
        await stop(work)
        server.close()


async def test_a_slow_key_set_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends a byte now and then doesn't hold the thread."""
    monkeypatch.setattr(token_module, "_DEADLINE", 0.3)
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 x\r\nContent-Length: 1000\r\n\r\n")
        with suppress(OSError):
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        left.set()

    server, place = await serve_keys(serve, tmp_path, monkeypatch)
    try:
        with pytest.raises(jwt.PyJWTError, match="timed out"):
            await asyncio.to_thread(KeySet(place)._read)
        async with asyncio.timeout(60):
            await left.wait()
    finally:
        server.close()


def test_key_sets_hold_public_keys_for_signatures(tmp_path: Path) -> None:
    """Keys for other purposes are ignored. Private, small and ambiguous keys are refused."""
    algorithm = jwt.get_algorithm_by_name("RS256")
    small = algorithm.to_jwk(SMALL.public_key(), as_dict=True)
    private = algorithm.to_jwk(RSA, as_dict=True)
    other = {"kty": "oct", "k": part(b"x" * 32), "kid": "o"}
    for extra in (other, public("r", use="enc"), public("r", alg="RS512"), {**public("e"), "crv": "P-521"}):
        keys = KeySet(key_set(tmp_path, extra, public("d")))
        assert keys.find({"kid": "d"}) is not None
        assert keys.find({"kid": extra["kid"]}) is None
    for wrong in ([small], [private], [public("r"), public("d") | {"kid": "r"}], [other]):
        with pytest.raises(SetupError, match=r"bits|private|same|no public key"):
            KeySet(key_set(tmp_path, *wrong))
    large = json.dumps({"keys": [public("d")]}) + " " * (1 << 20)
    for data in ("", "{", "[]", '{"keys":[]}', '{"keys":{}}', '{"keys":[1]}', '{"keys":[{"kty":"RSA"}]}', large):
        path = tmp_path / "keys.json"
        path.write_text(data)
        with pytest.raises(SetupError, match="can't be used"):
            KeySet(str(path))


async def test_a_key_set_that_was_never_read_is_not_sure() -> None:
    """Until the keys have been read, a refused client is told to try again."""
    unread = "https://127.0.0.1:1/"
    reader = tokens_of(token_secret=TokenSecret(), token_jwks=unread).reader(b"e30.e30.e30")
    assert not reader.is_sure


def test_settings_of_tokens_are_checked(tmp_path: Path) -> None:
    """A secret must be long and random, and no message shows it."""
    for name, value in (
        ("LIVE_TOKEN_SECRET", "short"), ("LIVE_TOKEN_SECRET", PEM), ("LIVE_TOKEN_JWKS", "http://example.org/keys"),
        ("LIVE_TOKENS_SINCE", "yesterday"), ("LIVE_TOKENS_SINCE", "2026-11-24T12:00:00"),
    ):  # fmt: skip
        with pytest.raises(SetupError) as caught:
            load_settings({name: value})
        assert name != "LIVE_TOKEN_SECRET" or value not in str(caught.value)
    given_both: dict[str, Any] = {"token_secret": TokenSecret(SECRET), "token_jwks": key_set(tmp_path)}
    for wrong in (given_both, {"token_jwks": str(tmp_path / "missing")}):
        with pytest.raises(SetupError, match="LIVE_TOKEN_JWKS"):
            make_tokens(Settings(**wrong))
    settings = load_settings({"LIVE_TOKEN_SECRET": SECRET, "LIVE_TOKENS_SINCE": "2026-11-24T12:00:00Z"})
    assert SECRET not in repr(settings)
    assert load_settings(as_environment(settings)) == settings
    assert make_tokens(Settings()) is None
