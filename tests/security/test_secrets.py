"""User names and passwords of URLs: no message, log or response shows them, whatever the drivers say."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
import pytest

from live.settings import Settings
from live.store.connection import pipelined
from live.store.connection.client import connect
from tests.harness.forked import run_live
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.postgres import Postgres, has_postgres, running_postgres
from tests.harness.server import ServerProcess, server
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.harness.waiting import eventually

pytestmark = pytest.mark.security

USER: Final = "alice"
PASSWORD: Final = "Zx4cretQ9y"  # noqa: S105
PIECES: Final = (USER, "Zx4", "Q9y")


def assert_hidden(text: str) -> None:
    """Check that a text has neither the user name nor a piece of the password."""
    assert [piece for piece in PIECES if piece in text] == []


def run_command(*words: str, folder: Path) -> str:
    """Run a command that must fail; returns everything that it prints."""
    environment = {**os.environ, "LIVE_DATA_DIR": str(folder / "data")}
    done = run_live(*words, environment=environment)
    assert done.returncode == 2, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("character", ["#", "@", "/", "?"])
def test_commands_refuse_a_password_that_is_not_encoded(tmp_path: Path, character: str) -> None:
    """The message says what to do. The drivers of Redis and PostgreSQL would quote a piece of the password."""
    password = f"Zx4{character}Q9y"
    for words in (
        ("boards", "--store", f"redis://{USER}:{password}@127.0.0.1:1"),
        ("serve", "--port", "0", "--store", f"redis://:{password}@127.0.0.1:1"),
    ):
        printed = run_command(*words, folder=tmp_path)
        assert "percent-encode" in printed
        assert_hidden(printed)


@pytest.mark.parametrize("character", ["#", "@", "/", "?"])
def test_a_journal_with_a_password_that_is_not_encoded_is_refused(
    tmp_path: Path, character: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command refuses the URL, and its message shows no piece of the password."""
    monkeypatch.setenv("LIVE_JOURNAL", f"postgresql://{USER}:Zx4{character}Q9y@127.0.0.1:1/board")
    printed = run_command("journal", folder=tmp_path)
    assert "percent-encode" in printed
    assert_hidden(printed)


def test_a_store_that_is_away_shows_no_user(tmp_path: Path) -> None:
    """The message has only the address of the store."""
    printed = run_command("boards", "--store", f"redis://{USER}:{PASSWORD}@127.0.0.1:1", folder=tmp_path)
    assert "127.0.0.1:1" in printed
    assert_hidden(printed)


@contextmanager
def limited(store: StoreProcess) -> Iterator[str]:
    """A user of the store who may not write strings; yields the URL."""
    import redis  # noqa: PLC0415 - only to set the store up

    with redis.Redis.from_url(store.url) as admin:
        admin.execute_command("ACL", "SETUSER", USER, "on", f">{PASSWORD}", "~*", "&*", "+@all", "-set")
    yield store.url.replace("unix://", f"unix://{USER}:{PASSWORD}@")


async def refusals(url: str, folder: Path) -> str:
    """Return what a server says to everyone while its store refuses the user of the server."""
    async with server(url, write_deadline=0.3, data_dir=folder) as asker:
        answers = [await asker.get("/readyz"), await asker.post("/v1/events", json={"key": "a"})]
        assert answers[0].status_code == 503
        assert "has no permissions to run the 'set' command" in answers[0].text
        return " ".join(f"{answer.headers} {answer.text}" for answer in answers)


async def test_a_refusal_of_the_store_does_not_name_its_user(
    own_store: StoreProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The store's own message names the user. Everyone may read `/readyz`."""
    with limited(own_store) as url:
        assert_hidden(await refusals(url, tmp_path))
    assert_hidden(caplog.text)


@pytest.mark.mutant
async def test_the_message_of_the_store_itself_is_noticed(own_store: StoreProcess, tmp_path: Path) -> None:
    """The mutant shows the store's message, which has the user's name."""
    with (
        limited(own_store) as url,
        must_be_caught("messages of the store pass unchanged"),
        replaced(pipelined, "reason_of", str),
    ):
        assert_hidden(await refusals(url, tmp_path))


async def test_a_wrong_password_of_the_store_is_not_shown(own_store: StoreProcess, tmp_path: Path) -> None:
    """Messages show neither the right nor the wrong password."""
    with limited(own_store) as url:
        printed = run_command("boards", "--store", url.replace(PASSWORD, f"{PASSWORD}5"), folder=tmp_path)
        assert "invalid username-password pair" in printed
        assert_hidden(printed)


@contextmanager
def password_postgres() -> Iterator[tuple[Postgres, str]]:
    """A PostgreSQL server that asks a user for a password; yields the server, and the URL of the user."""
    with running_postgres() as postgres:
        with psycopg.connect(postgres.url) as admin:
            admin.execute(f"CREATE USER {USER} PASSWORD '{PASSWORD}'")
            admin.execute(f"GRANT ALL ON SCHEMA public TO {USER}")
        postgres.kill()
        (postgres.folder / "data" / "pg_hba.conf").write_text(
            f"local all {USER} scram-sha-256\nlocal all all trust\n", encoding="ascii"
        )
        postgres.start()
        yield postgres, f"postgresql://{USER}:{PASSWORD}@/postgres?host={postgres.folder}"


@pytest.mark.slow
@pytest.mark.skipif(not has_postgres(), reason="needs a PostgreSQL server: apt-get install postgresql")
async def test_a_refusal_of_postgres_does_not_name_its_user(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/readyz`, the log, `live serve` and `live backup` say that the login failed, but do not name the user."""
    with password_postgres() as (postgres, journal):
        settings: Settings = fresh_settings(valkey_url, journal=journal, data_dir=tmp_path / "data")
        process = ServerProcess(settings, tmp_path)
        process.start()
        try:
            with psycopg.connect(postgres.url) as admin:
                admin.execute(f"ALTER USER {USER} PASSWORD 'another'")
            postgres.kill()
            postgres.start()
            async with httpx.AsyncClient(base_url=process.url) as asker:

                async def reasons() -> Any:
                    await asker.post("/v1/events", json={"key": "a"})
                    found = (await asker.get("/readyz")).json().get("reasons", ())
                    return [reason for reason in found if "password authentication failed" in reason]

                assert_hidden(str(await eventually(reasons)))
        finally:
            process.stop()
        assert_hidden(process.log())
        process.spawn()
        assert process.process is not None
        assert process.process.wait(30) == 2
        monkeypatch.setenv("LIVE_JOURNAL", journal)
        printed = run_command("backup", str(tmp_path / "backup"), "--store", valkey_url, folder=tmp_path)
        for said in (printed, process.log()):
            assert "password authentication failed" in said
            assert_hidden(said)


@pytest.mark.parametrize("scheme", ["redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"])
@pytest.mark.parametrize("password", [PASSWORD, "Zx4%2F%40Q9y"])
def test_a_store_of_several_servers_shows_no_user(tmp_path: Path, scheme: str, password: str) -> None:
    """No message names the user of the store or of the Sentinels, whether servers are away or an option is wrong."""
    name = "/name" if scheme.endswith("sentinel") else ""
    own = f"?sentinel_username={USER}&sentinel_password={password}" if name else ""
    url = f"{scheme}://{USER}:{password}@127.0.0.1:1,127.0.0.1:2{name}"
    for wrong in (f"{url}{own}", f"{url}?nosuch={password}", f"{url}/more", f"{url}:"):
        printed = run_command("boards", "--store", wrong, folder=tmp_path)
        assert "127.0.0.1:" in printed or "percent-encode" in printed
        assert_hidden(printed)


async def test_the_client_of_a_store_shows_no_password() -> None:
    """The `repr` of the client and of its connection shows no password."""
    store = connect(f"redis://{USER}:{PASSWORD}@127.0.0.1:1", Settings())
    assert PASSWORD not in f"{store!r} {store.servers.shared!r}"
    await store.aclose()
