"""What a server checks at its start, and what `live serve --check` finds and advises."""

import json
import os
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from live import __version__
from live.process.checks import check_machine
from tests.harness.commands import run_command
from tests.harness.disk import may_mount, small_disk
from tests.harness.network import free_port
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.shims import Clock, has_compiler
from tests.harness.store import valkey
from tests.harness.waiting import until


def examine(*words: str, **environment: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """Return the exit status, and the state and detail of each finding, by check."""
    ended = run_command("serve", "--check", "--json", *words, **{"LIVE_PORT": "0", **environment})
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["starts"] is (ended.returncode == 0)
    findings: dict[str, list[tuple[str, str]]] = {}
    for one in found["findings"]:
        findings.setdefault(one["check"], []).append((one["state"], one["detail"]))
    return ended.returncode, findings


def test_a_sound_machine_has_no_fault(valkey_url: str, tmp_path: Path) -> None:
    """Every part is checked, and nothing is changed: the command does not create the data directory."""
    folder = tmp_path / "data"
    status, found = examine("--store", valkey_url, "--data-dir", str(folder), LIVE_MAX_VIEWERS="100")
    assert (status, {state for findings in found.values() for state, _ in findings}) == (0, {"ok"})
    assert found.keys() == {
        "versions", "network", "limits", "files", "port", "store", "clock", "servers", "keys", "journal",
    }  # fmt: skip
    assert any("answers: Valkey " in detail for _, detail in found["store"])
    assert found["clock"] == [("ok", "the store and this machine have the same time")]
    assert not folder.exists()
    assert "no server uses" in examine("--data-dir", str(folder))[1]["store"][0][1]
    printed = run_command("serve", "--check", "--port", "0", "--store", valkey_url, "--data-dir", str(folder)).stdout
    assert (printed.startswith("check "), printed.endswith("The server would start.\n")) == (True, True)


def test_another_client_in_the_same_environment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the client contains modules of the server, so two versions would be mixed."""
    metadata = tmp_path / "live_board_client-0.0.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    for version, found in (("0.0.1", ["warning"]), (__version__, [])):
        metadata.write_text(f"Metadata-Version: 2.1\nName: live-board-client\nVersion: {version}\n", encoding="ascii")
        monkeypatch.syspath_prepend(tmp_path)
        findings = [finding for finding in check_machine(fresh_settings("")) if finding.check == "versions"]
        assert [finding.state for finding in findings] == found


def test_each_fault_is_found(tmp_path: Path) -> None:
    """The exit status tells whether there are faults, or only warnings."""
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data").chmod(0o755)
    (tmp_path / "boards.toml").write_text("[[board]]\nid = 5\n")
    store = valkey(tmp_path)
    store.start()
    redis.Redis.from_url(store.url).config_set("requirepass", "sesame")
    data = {"LIVE_DATA_DIR": str(tmp_path / "data")}
    for check, state, words, environment in (
        ("settings", "fault", "did you mean `LIVE_PORT`?", {"LIVE_PROT": "1"}),
        ("boards", "fault", "`id`: expected a text, got 5", {"LIVE_BOARDS": str(tmp_path / "boards.toml")}),
        ("network", "warning", "LIVE_ALLOWED_HOSTS", {"LIVE_HOST": "0.0.0.0"}),  # noqa: S104
        ("network", "warning", "any web page", {"LIVE_OPEN": "true", "LIVE_ALLOWED_HOSTS": "*"}),
        ("limits", "warning", "LimitNOFILE", {"LIVE_MAX_VIEWERS": "2000000000"}),
        ("store", "fault", "USER:PASSWORD@HOST", {"LIVE_STORE": store.url}),
        ("store", "fault", "Start the store, or correct LIVE_STORE", {"LIVE_STORE": "redis://127.0.0.1:9"}),
        ("journal", "fault", "postgresql://user:password@host", {"LIVE_JOURNAL": "mysql://h/d"}),
        ("journal", "warning", "correct LIVE_JOURNAL", {"LIVE_JOURNAL": "postgresql://u:p@127.0.0.1:9/d"}),
    ):
        status, found = examine(**{**data, **environment})
        assert any(one[0] == state and words in one[1] for one in found[check]), (check, words, found)
        assert status == (1 if state == "fault" else 0)
        assert state != "fault" or {one[0] for one in found[check]} == {"fault"}, found
    store.kill()


def test_any_host_without_api_keys_is_unsafe() -> None:
    """The warning appears only if events are accepted without an API key."""

    def is_unsafe(**changes: object) -> bool:
        findings = check_machine(fresh_settings("", **changes))
        return any(one.state == "warning" and "any web page" in one.detail for one in findings)

    for hosts, is_open, unsafe in ((("*",), True, True), (("*",), False, False), (("*.example.org",), True, False)):
        assert is_unsafe(allowed_hosts=hosts, open=is_open) is unsafe


def test_a_port_in_use_is_a_fault_unless_a_server_of_live_board_uses_it(tmp_path: Path) -> None:
    """So the check also works beside the server that it is about."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        status, found = examine("--port", port, "--data-dir", str(tmp_path / "none"))
    assert (status, found["port"][0][0], "Choose another port" in found["port"][0][1]) == (1, "fault", True)
    server = ServerProcess(fresh_settings("", data_dir=tmp_path / "data", port=free_port(), journal="off"), tmp_path)
    server.start()
    try:
        port = server.url.rpartition(":")[2]
        status, found = examine("--port", port, "--data-dir", str(tmp_path / "data"))
        assert (status, found["port"][0][0], "a server of version" in found["port"][0][1]) == (0, "ok", True)
    finally:
        server.stop()


def test_missing_api_keys_are_a_fault_if_others_reach_the_server(valkey_url: str, tmp_path: Path) -> None:
    """The server would refuse to start, and the check says so."""
    given = ("--store", valkey_url, "--data-dir", str(tmp_path / "data"), "--host", "0.0.0.0")  # noqa: S104
    status, found = examine(*given, LIVE_KEY_PREFIX="nokeys")
    assert (status, "live keys add" in found["keys"][0][1]) == (1, True)
    assert examine(*given, "--open", LIVE_KEY_PREFIX="nokeys")[0] == 0


def test_a_boards_file_that_the_stored_boards_rule_out_is_a_fault(tmp_path: Path) -> None:
    """The server would refuse to start. The command changes nothing."""
    store, file = valkey(tmp_path), tmp_path / "boards.toml"
    store.start()
    file.write_text('[[board]]\nid = "june"\n', encoding="utf-8")
    settings = fresh_settings(store.url, data_dir=tmp_path / "data", boards=file)
    server = ServerProcess(settings, tmp_path)
    given = {
        "LIVE_STORE": store.url, "LIVE_DATA_DIR": str(settings.data_dir), "LIVE_KEY_PREFIX": settings.key_prefix,
        "LIVE_BOARDS": str(file), "LIVE_JOURNAL": "off",
    }  # fmt: skip
    server.start()
    try:
        file.write_text('[[board]]\nid = "june"\ntitle = "June"\n[[board]]\nid = "july"\n', encoding="utf-8")
        status, found = examine(**given)
        assert (status, found["boards"]) == (0, [("ok", "boards that the file creates: 1; that it changes: 1")])
        file.write_text('[[board]]\nid = "june"\nclock = "event"\n', encoding="utf-8")
        status, found = examine(**given)
        assert (status, "board 'june': `clock` can't change" in found["boards"][0][1]) == (1, True)
    finally:
        server.stop()
        store.kill()


SERVES = [("ok", "live processes of servers: 1")]


def test_an_emptied_store_is_a_fault(tmp_path: Path) -> None:
    """The command finds it beside a server and after the server has ended, and changes nothing in the store."""
    store = valkey(tmp_path)
    store.start()
    settings = fresh_settings(store.url, data_dir=tmp_path / "data", journal="sqlite")
    client, server = redis.Redis.from_url(store.url), ServerProcess(settings, tmp_path)
    given = {"LIVE_STORE": store.url, "LIVE_DATA_DIR": str(settings.data_dir), "LIVE_KEY_PREFIX": settings.key_prefix}
    server.start()
    try:
        until(lambda: examine(**given)[1]["servers"] == SERVES)
        status, found = examine(**given)
        assert (status, {state for state, _ in found["store"]}) == (0, {"ok"})
        client.flushall()
        status, found = examine(**given)
        assert (status, "the store lost data" in str(found["store"])) == (1, True)
    finally:
        server.stop()
    client.flushall()
    status, found = examine(**given)
    assert (status, "the store lost data" in str(found["store"])) == (1, True)
    assert client.dbsize() == 0
    store.kill()


def test_a_check_of_another_store_does_not_stop_the_server(valkey_url: str, tmp_path: Path) -> None:
    """Before a move, an operator tries the new store with the data directory in use. The server remembers no loss."""
    file = tmp_path / "boards.toml"
    file.write_text('[[board]]\nid = "june"\n', encoding="utf-8")
    settings = fresh_settings("", data_dir=tmp_path / "data", journal="sqlite", boards=file)
    given = {
        "LIVE_STORE": valkey_url, "LIVE_DATA_DIR": str(settings.data_dir), "LIVE_KEY_PREFIX": settings.key_prefix,
        "LIVE_BOARDS": str(file),
    }  # fmt: skip
    notes = settings.data_dir / f"witness-{settings.key_prefix}.json"
    server = ServerProcess(settings, tmp_path)
    server.start()
    try:
        before = json.loads(notes.read_text())
        status, found = examine(**given)
        assert (status, "it was emptied, or is another one" in str(found["store"])) == (1, True)
        assert json.loads(notes.read_text()) == before
        assert httpx.post(f"{server.url}/v1/events", json={"key": "a"}).status_code == 200
    finally:
        server.stop()


def test_missing_files_of_the_embedded_store_are_a_fault(tmp_path: Path) -> None:
    """The command finds it although no store runs. The files are missing, and the data directory knows the store."""
    settings = fresh_settings("", data_dir=tmp_path / "data", journal="sqlite")
    given = {"LIVE_DATA_DIR": str(settings.data_dir), "LIVE_KEY_PREFIX": settings.key_prefix}
    server = ServerProcess(settings, tmp_path)
    server.start()
    server.stop()
    assert examine(**given)[0] == 0
    shutil.rmtree(settings.data_dir / "appendonlydir")
    status, found = examine(**given)
    assert (status, [state for state, _ in found["store"]]) == (1, ["fault", "fault"])
    assert "are missing" in found["store"][0][1]
    assert "live recover --from journal" in found["store"][1][1]


def test_a_server_with_another_data_directory_is_found(tmp_path: Path) -> None:
    """The command names the data directory of the server that runs, and asks its store if it gets this directory."""
    settings = fresh_settings("", data_dir=tmp_path / "used", journal="off")
    server = ServerProcess(settings, tmp_path)
    server.start()
    try:
        status, found = examine("--data-dir", str(tmp_path / "other"))
        assert status == 0
        assert any(state == "warning" and f"--data-dir {settings.data_dir}" in text for state, text in found["store"])
        own = "--data-dir", str(settings.data_dir)
        until(lambda: examine(*own, LIVE_KEY_PREFIX=settings.key_prefix)[1]["servers"] == SERVES)
    finally:
        server.stop()


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount a file system")
def test_a_full_disk_and_a_dead_store_are_faults(tmp_path: Path) -> None:
    """The embedded store can't write to the disk. `/readyz` names the disk too. Then the store does not answer."""
    with small_disk(tmp_path / "disk", "64M") as disk:
        settings = fresh_settings("", data_dir=disk.path / "data", journal="off", write_deadline=1)
        server = ServerProcess(settings, tmp_path)
        server.start()
        try:
            disk.fill()
            with httpx.Client(base_url=server.url, timeout=180) as client:
                until(lambda: client.post("/v1/events", json={"key": "a"}).status_code == 503)

                def reasons() -> list[str]:
                    ready: dict[str, Any] = client.get("/readyz").json()
                    return ready["reasons"] if ready["status"] == "not_ready" else []

                (reason,) = until(reasons)
                assert "the disk of the data directory is full" in reason
            folder = str(settings.data_dir)
            status, found = examine("--data-dir", folder)
            assert status == 1
            assert [state for state, text in found["files"] if "the disk of the data directory is full" in text] == [
                "fault"
            ]
            disk.clear()
            until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
            store = redis.Redis(unix_socket_path=str(settings.data_dir / "valkey.sock")).info("server")["process_id"]
            os.kill(store, signal.SIGSTOP)
            assert [state for state, _ in examine("--data-dir", folder)[1]["store"]] == ["fault"]
            os.kill(store, signal.SIGCONT)
        finally:
            disk.clear()
            server.stop()


@pytest.mark.skipif(not has_compiler(), reason="needs a C compiler")
def test_a_clock_that_is_two_hours_off_is_named_everywhere(tmp_path: Path) -> None:
    """The server warns at its start, `/readyz` is degraded, and the command warns."""
    store, clock = valkey(tmp_path), Clock(tmp_path)
    clock.shift(7200)
    store.environment = clock.environment
    store.start()
    settings = fresh_settings(store.url, data_dir=tmp_path / "data", journal="off")
    server, sentence = ServerProcess(settings, tmp_path), "the clock of the store is 7,200 s ahead of this machine"
    server.start()
    try:
        assert sentence in server.log()
        ready = httpx.get(f"{server.url}/readyz").json()
        assert (ready["status"], [sentence in reason for reason in ready["reasons"]]) == ("degraded", [True])
        status, found = examine("--store", store.url, "--data-dir", str(settings.data_dir))
        assert (status, [(state, sentence in text) for state, text in found["clock"]]) == (0, [("warning", True)])
    finally:
        server.stop()
        store.kill()
