"""The commands as users see them: their output and their exit status, in the test's process and in other processes."""

import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from typer.main import get_command
from typer.testing import CliRunner
from websockets.sync.client import connect

from live import __version__
from live.cli.context import words_of
from live.cli.main import COMMANDS, app
from live.process.serve import _address, bound_socket
from live.settings import Settings
from live.system.version import commit
from tests.harness.commands import BARE, run_command
from tests.harness.forked import run_live
from tests.harness.network import free_port
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.store import valkey

pytestmark = pytest.mark.slow

NOT_ON_REWRITE = (
    "the store does not fsync during a rewrite (no-appendfsync-on-rewrite yes): "
    "a power cut then loses acknowledged events. Set it to no"
)


def refused(*arguments: str, process: bool = False, **environment: str) -> list[str]:
    """The lines with which a command is refused: exit status 2, nothing on standard output, no traceback."""
    ended = run_live(*arguments, environment=BARE | environment) if process else run_command(*arguments, **environment)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("live: ")
    assert "Traceback" not in ended.stderr
    return ended.stderr.removeprefix("live: ").splitlines()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, because the path of a unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="live-") as name:
        yield Path(name)


@contextmanager
def serving(settings: Settings, folder: Path) -> Iterator[ServerProcess]:
    """Run `live serve` while in the context."""
    server = ServerProcess(settings, folder)
    server.start()
    try:
        yield server
    finally:
        assert server.process is not None
        if server.process.poll() is None:
            server.kill()


def own_store(folder: Path, **changes: Any) -> Settings:
    """Settings with which `serve` starts its own store."""
    return fresh_settings("", data_dir=folder / "data", **changes)


def like(server: ServerProcess, *keys: str) -> dict[str, Any]:
    """Post a like for each member."""
    response = httpx.post(f"{server.url}/v1/events", json=[{"key": member} for member in keys], timeout=180)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def scores(server: ServerProcess) -> dict[str, int]:
    """The scores of the whole board."""
    page = httpx.get(f"{server.url}/v1/boards/posts?limit=1000", timeout=180).json()
    return {record["key"]: record["score"] for record in page["records"]}


def warnings(server: ServerProcess) -> list[str]:
    """The warnings in a server's log."""
    lines = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
    return [line["event"] for line in lines if line["level"] == "warning"]


@pytest.mark.parametrize("command", ["serve", "send", "load", "check"])
def test_help_has_a_description_an_example_and_all_flags(command: str) -> None:
    """Every flag has a description."""
    ended = run_command(command, "--help", COLUMNS="100")
    assert ended.returncode == 0
    assert f"Example: live {command}" in ended.stdout
    flags = re.findall(r"^│ +\*? +(\S+).*$", ended.stdout, re.MULTILINE)
    assert flags
    for line in re.findall(r"^│ +(?:\*? +)?--.*$", ended.stdout, re.MULTILINE):
        assert re.search(r"[a-z]{3,} [a-z]", line.split(">", 1)[-1]), line


def test_help_is_broken_where_the_terminal_ends() -> None:
    """Help breaks lines where the terminal ends, and not where the code does. Commands in groups are tried too."""
    for words in (("recover",), ("load",), ("journal",), ("keys", "add")):
        lines = run_command(*words, "--help", COLUMNS="80").stdout.partition("Options")[0].splitlines()
        for line, following in pairwise(line.strip() for line in lines):
            if line and following and "Usage" not in line:
                assert len(line) + 1 + len(following.split()[0]) > 78, line


def test_the_address_is_one_that_this_machine_reaches() -> None:
    """The printed address can be opened even if the server listens on all addresses."""
    for host, shown in {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]", "10.1.2.3": "10.1.2.3"}.items():  # noqa: S104
        assert _address(fresh_settings("", host=host, port=80)) == f"http://{shown}:80"


def leaves(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command below a group, with its words."""
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name in command.list_commands(None):
        yield from leaves((*words, name), command.get_command(None, name))


def test_options_that_list_things_may_be_repeated_and_others_not() -> None:
    """No value is lost: it counts beside the first, or the command is refused. All commands are tried."""
    lists, refused_twice = set(), 0
    for words, command in leaves((), get_command(app)):
        for option in command.params:
            if option.param_type_name != "option" or getattr(option, "is_flag", False):
                continue
            (name, *_) = option.opts
            if option.multiple:
                lists.add((words[-1], name))
                assert option.help.endswith("Separate several by commas, or repeat the option."), (words, name)
            else:
                assert not re.search(r"a,b|repeat", option.help or ""), (words, name)
                ended = CliRunner().invoke(app, [*words, name, "1", name, "2"], env={"COLUMNS": "200"})
                assert ended.exit_code == 2, (words, name)
                assert "it takes one value" in ended.output, (words, name)
                refused_twice += 1
    assert lists == {
        ("add", "--board"), ("add", "--verbs"), ("add", "--types"), ("token", "--board"), ("token", "--likes"),
        ("journal", "--board"), ("erase", "--board"), ("check", "--board"), ("load", "--slo"),
    }  # fmt: skip
    assert refused_twice > 60
    assert words_of(["a,b", " c ,a"]) == ("a", "b", "c")


def test_there_are_at_most_22_commands() -> None:
    """Groups count too, so that the help of `live` stays a page."""
    groups = {words[:-1] for words, _ in leaves((), get_command(app))} - {()}
    assert len(list(leaves((), get_command(app)))) + len(groups) <= 22


def test_common_options_may_come_before_the_command(tmp_path: Path) -> None:
    """They mean the same as behind the command, which takes precedence. A command refuses what it does not use."""
    for words in (
        ("--data-dir", str(tmp_path / "a"), "keys", "list"),
        ("keys", "list", "--data-dir", str(tmp_path / "a")),
    ):
        assert refused(*words) == [f"there is no data directory {tmp_path / 'a'}; use --data-dir or --store"]
    (line,) = refused("--data-dir", "a", "keys", "list", "--data-dir", str(tmp_path / "b"))
    assert str(tmp_path / "b") in line
    asked = run_command("--json", "token", "--board", "staff", LIVE_TOKEN_SECRET="s" * 32)
    assert json.loads(asked.stdout)["boards"] == ["staff"]
    ended = run_command("--store", "redis://h", "send", "x", COLUMNS="200")
    assert (ended.returncode, "`live send` takes no such option" in ended.stderr) == (2, True)
    ended = run_command("--json", COLUMNS="200")
    assert (ended.returncode, "Missing command" in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [("live b", {"boards", "backup"}), ("live keys ", {"add", "list", "revoke"}), ("live check --r", {"--repair"})],
)
def test_a_shell_completes_commands_and_options(typed: str, wanted: set[str]) -> None:
    """Bash asks the command itself what may come next."""
    words = typed.split(" ")
    asked = {"_LIVE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    code = "import sys; sys.argv = ['live']; from live.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code], env=BARE | asked, capture_output=True, text=True, timeout=180, check=False
    )
    assert set(ended.stdout.split()) == wanted


def test_without_a_command_the_commands_are_listed() -> None:
    """`live` alone lists the commands, and shows new users how to start the demo."""
    ended = run_command(COLUMNS="100")
    listed = ended.stdout + ended.stderr
    assert "live serve --demo" in listed
    for name in COMMANDS:
        assert re.search(rf"^\W+{name} +[A-Z]", listed, re.MULTILINE), name


def test_the_version_is_printed() -> None:
    """The command prints the version of the package, and its commit if that is known."""
    ended = run_live("--version", environment=BARE)
    of_commit = f" ({commit()})" if commit() else ""
    assert (ended.returncode, ended.stdout) == (0, f"live {__version__}{of_commit}\n")


def test_a_port_in_use_is_reported_in_one_line(folder: Path) -> None:
    """The server reports the port before it starts a store or writes a file."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        (line,) = refused("serve", "--port", port, "--data-dir", str(folder / "data"), process=True)
    assert line.startswith(f"can't listen on 127.0.0.1 port {port}: Address already in use. ")
    assert line.endswith("Choose another port with --port (0 takes a free one).")
    assert not (folder / "data").exists()


def test_answers_are_not_delayed() -> None:
    """The socket has TCP_NODELAY, so the body of an answer does not wait until the client acknowledges the head."""
    with bound_socket(fresh_settings("")) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("host", ["nowhere.invalid", "203.0.113.1"])
def test_an_invalid_address_is_reported_in_one_line(host: str) -> None:
    """The address is a name that does not resolve, or belongs to another machine."""
    (line,) = refused("serve", "--host", host, "--port", "0", process=True)
    assert line.startswith(f"can't listen on {host} port 0: ")


def test_all_invalid_settings_are_reported() -> None:
    """Each setting has its own line."""
    lines = refused("serve", "--port", "70000", LIVE_WORKERS="many", LIVE_STORE_TIMEOUT="5")
    assert [line.split(":")[0] for line in lines] == [
        "LIVE_PORT (or its flag) = '70000'",
        "LIVE_WORKERS (or its flag) = 'many'",
        "LIVE_STORE_TIMEOUT (or its flag) = '5'",
    ]


def test_an_invalid_setting_causes_no_other_mistakes(folder: Path) -> None:
    """A limit that can't be read is not replaced by its default.

    So no message says that the file has too many boards.
    """
    path = folder / "boards.toml"
    path.write_text("".join(f'[[board]]\nid = "b{number}"\n' for number in range(1001)), encoding="utf-8")
    given = ("serve", "--boards", str(path), "--port", "0", "--data-dir", str(folder / "data"))
    (line,) = refused(*given)
    assert "max_boards allows 1000" in line
    (line,) = refused(*given, LIVE_MAX_BOARDS="abc")
    assert line.startswith("LIVE_MAX_BOARDS (or its flag) = 'abc'")


def test_all_mistakes_in_a_boards_file_are_reported(folder: Path) -> None:
    """The path of the file comes first, and then a line for each mistake."""
    path = folder / "boards.toml"
    path.write_text(
        '[[board]]\nid = "A"\n[[board]]\nid = "b"\nclock = "sun"\n[[board]]\nid = "b"\nwindow = {slot = "1h"}'
    )
    lines = refused("serve", "--boards", str(path), "--port", "0", "--data-dir", str(folder / "data"))
    assert lines == [
        f"the boards file {path} has mistakes:",
        "board 1 ('A'): id = 'A' is not an id: write 1 to 64 of a-z, 0-9, - and _, and begin with a letter or a digit",
        "board 2 ('b'): `clock`: there is no value `sun`; there are: event, server",
        "board 3 ('b'): window must be one of {rolling = …}, {sliding = …}, {calendar = …} and \"forever\"",
        "board 3 ('b'): another board has this id",
    ]


def test_a_load_test_goes_to_the_address_of_the_settings() -> None:
    """Without `--server`, the port and the path are those of the server on this machine."""
    assert refused("load", LIVE_PORT="9", LIVE_ROOT_PATH="/live")[0].startswith("can't reach http://127.0.0.1:9/live: ")
    assert "name its address with --server" in refused("load", LIVE_PORT="0")[0]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["serve", "--store", "http://h", "--port", "0"], "the store http://h: expected redis://… or rediss://… or unix://…"),
        (["check", "--store", "unix:///nowhere/valkey.sock"], "the store is unavailable: "),
        (["send", "/nowhere/likes.ndjson"], "can't read /nowhere/likes.ndjson: "),
        (["send", "x", "--speed", "fast"], "--speed 'fast': expected a number such as 60, or max"),
        (["send", "x", "--speed", "0"], "--speed '0': expected a number such as 60, or max"),
        (["send", "x", "--speed", "inf"], "--speed 'inf': expected a number such as 60, or max"),
        (["load", "--server", "127.0.0.1:8000"], "'127.0.0.1:8000' is not a URL such as http://127.0.0.1:8000"),
        (["load", "--server", "http://127.0.0.1:9"], "can't reach http://127.0.0.1:9: "),
        (["send", "x", "--server", "ftp://h"], "'ftp://h' is not a URL such as http://127.0.0.1:8000"),
        (["send", "x", "--key", "sesame"], "the API key is not of the form ID.SECRET, as"),
        (["load", "--key", ""], "the API key is not of the form ID.SECRET, as"),
        (["load", "--slo", "p98=1s"], "--slo 'p98=1s': expected acknowledged or seen, one of p50, p90, p99,"),
        (["load", "--rate", "fast"], "--rate 'fast': expected likes per second, like 500, or a ramp, like 100..2000"),
        (["load", "--duration", "10"], "'10' is not a duration; "),
    ],
)  # fmt: skip
def test_errors_are_reported_in_one_line(arguments: list[str], line: str) -> None:
    """The line has the cause, and often advice. The exit status is 2, and there is never a traceback."""
    (printed,) = refused(*arguments)
    assert printed.startswith(line)


def test_a_check_includes_all_boards(folder: Path) -> None:
    """For an unknown board, the message lists the known boards."""
    settings = own_store(folder, anonymous_admin=True)
    options = ("--store", f"unix://{folder}/data/valkey.sock")
    with serving(settings, folder) as server:
        made = httpx.put(f"{server.url}/v1/boards/made", json={"types": ["kiss"], "window": "forever"})
        assert made.status_code == 201, made.text
        found = run_command("check", "--json", *options, LIVE_KEY_PREFIX=settings.key_prefix)
        assert [report["board"] for report in json.loads(found.stdout)["boards"]] == ["posts", "made"]
        unknown = run_command("check", "--board", "nope", *options, LIVE_KEY_PREFIX=settings.key_prefix)
        assert unknown.returncode == 1
        assert unknown.stderr == "live: there is no board `nope`; there are: made, posts\n"


def test_a_data_directory_has_one_owner(folder: Path) -> None:
    """A second server is refused, and does no harm. The message has the PID of the first server."""
    with serving(own_store(folder), folder) as server:
        assert server.process is not None
        (line,) = refused("serve", "--port", "0", "--data-dir", str(folder / "data"), process=True)
        assert f"{folder / 'data'} is in use by process {server.process.pid}: " in line
        assert like(server, "a")["accepted"] == 1


def test_the_path_of_a_data_directory_is_checked(folder: Path) -> None:
    """A path is refused if it is too long for a Unix socket, or is no directory."""
    (line,) = refused("serve", "--port", "0", "--data-dir", str(folder / ("d" * 120)))
    assert "is too long for a unix socket (107 bytes): choose a shorter --data-dir" in line
    (folder / "file").write_text("")
    (line,) = refused("serve", "--port", "0", "--data-dir", str(folder / "file"))
    assert line == f"can't use the data directory {folder / 'file'}: File exists"


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ([], []),
        (
            ["--appendonly", "no"],
            ["the store has no append-only file (appendonly no): a crash loses acknowledged events"],
        ),
        (
            ["--appendfsync", "everysec", "--no-appendfsync-on-rewrite", "yes"],
            [
                "the store's appendfsync is everysec, not always: a power cut loses acknowledged events",
                NOT_ON_REWRITE,
            ],
        ),
    ],
)
def test_unsafe_settings_of_the_store_are_logged(folder: Path, options: list[str], lines: list[str]) -> None:
    """Each setting has its own line. The server starts anyway."""
    store = valkey(folder, *options)
    store.start()
    with serving(fresh_settings(store.url, max_connections=100, max_viewers=100), folder) as server:
        assert warnings(server) == lines
        assert like(server, "a")["accepted"] == 1
        assert server.stop() == 0
    store.kill()


def test_a_wrong_password_of_the_store_is_reported_at_once(folder: Path) -> None:
    """The server does not try again. It shows how to write the address, without the password."""
    store = valkey(folder)
    store.start()
    redis.Redis.from_url(store.url).config_set("requirepass", "sesame")
    host = store.url.partition("://")[2]
    for url in (store.url, store.url.replace("://", "://:guess@")):
        (line,) = refused("serve", "--store", url, "--port", "0", "--data-dir", str(folder / "data"))
        assert line.startswith("the store refuses the login: ")
        assert line.endswith(f"Set LIVE_STORE or --store to {store.url.partition('://')[0]}://USER:PASSWORD@{host}")
        assert "guess" not in line
    store.kill()


def test_settings_are_checked_before_the_store_starts(folder: Path) -> None:
    """After a mistake, no store runs and no file is left behind."""
    lines = refused("serve", "--port", "0", "--data-dir", str(folder / "data"), LIVE_JOURNAL="mysql://h/d")
    assert lines[0].startswith("LIVE_JOURNAL is none of `sqlite`, `off` and a URL")
    assert not (folder / "data").exists()


def test_all_wrong_settings_are_in_one_list(folder: Path) -> None:
    """The list also has the mistakes in the boards file and in the addresses of the store and the database."""
    data = str(folder / "data")
    lines = refused(
        "serve", "--data-dir", data, "--store", "http://h", "--boards", "/nowhere/boards.toml",
        LIVE_PORT="x", LIVE_JOURNAL="mysql://h/d",
    )  # fmt: skip
    for words in ("LIVE_PORT", "LIVE_JOURNAL is none of", "/nowhere/boards.toml", "the store http"):
        assert sum(words in line for line in lines) == 1, (words, lines)
    assert not (folder / "data").exists()


def test_a_store_that_evicts_is_refused(folder: Path) -> None:
    """The server does not start if the store may evict store keys, because rankings could then become wrong."""
    store = valkey(folder, "--maxmemory-policy", "volatile-ttl")
    store.start()
    (line,) = refused("serve", "--store", store.url, "--port", "0", process=True)
    assert "the store's maxmemory-policy is volatile-ttl" in line
    store.kill()


def test_data_is_kept_after_a_restart(folder: Path) -> None:
    """A server with viewers stops with status 0. After a restart, its counts are still there."""
    settings = own_store(folder)
    with serving(settings, folder) as server:
        like(server, "a", "b", "a")
        with connect(f"{server.url.replace('http', 'ws')}/v1/boards/posts/live") as viewer:
            viewer.recv()
            assert server.stop() == 0
        told = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
        (start,) = [line for line in told if line["event"] == "the server starts"]
        assert (start["version"], start["role"], start["workers"], start["boards"]) == (__version__, "all", 1, 1)
        assert "the server has stopped" in [line["event"] for line in told]
    with serving(settings, folder) as server:
        assert scores(server) == {"a": 2, "b": 1}
        like(server, "b")
        assert server.stop() == 0
        assert "Traceback" not in server.log()


def test_a_server_stops_under_load(folder: Path) -> None:
    """Every acknowledged event is counted. The server stops within ten seconds and without a traceback."""
    settings = own_store(folder)
    counted: list[int] = []

    def storm(server: ServerProcess) -> None:
        with httpx.Client() as client, suppress(httpx.HTTPError):
            while True:
                answer = client.post(f"{server.url}/v1/events", json=[{"key": "a"}] * 10)
                counted.append(answer.json().get("accepted", 0))

    with serving(settings, folder) as server:
        threads = [threading.Thread(target=storm, args=(server,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        while len(counted) < 50:
            time.sleep(0.01)
        assert server.stop() == 0
        for thread in threads:
            thread.join()
        assert "Traceback" not in server.log()
    with serving(settings, folder) as server:
        assert sum(counted) <= scores(server)["a"] <= sum(counted) + 4 * 10


def test_workers_share_a_board(folder: Path) -> None:
    """A like counts once, whichever process it reaches.

    The metrics include all workers, and all workers end together.
    """
    with serving(own_store(folder, workers=2), folder) as server:

        def post(number: int) -> int:
            events = [{"key": f"k{(number + i) % 5}"} for i in range(25)]
            with httpx.Client(base_url=server.url, timeout=180) as client:
                return sum(client.post("/v1/events", json=event).json()["accepted"] for event in events)

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(post, range(16))) == 400
        assert scores(server) == {f"k{i}": 80 for i in range(5)}
        text = httpx.get(f"{server.url}/metrics").text
        assert 'live_events_accepted_total{board="posts"} 400.0' in text
        assert float(re.findall(r"^process_resident_memory_bytes (.+)$", text, re.MULTILINE)[0]) > 2e7
        assert server.stop() == 0
        assert "Traceback" not in server.log()


def test_workers_do_not_outlive_their_parent(folder: Path) -> None:
    """`kill -9` of the parent ends the workers and the embedded store too: port and data are free again."""
    with serving(own_store(folder, workers=2, port=free_port()), folder) as server:
        like(server, "a")
        server.kill()
        end = time.monotonic() + 15
        while True:
            try:
                server.start()
                break
            except AssertionError:
                assert time.monotonic() < end
                time.sleep(0.2)
        assert scores(server) == {"a": 1}


def test_a_check_of_a_missing_board_is_an_error(valkey_url: str) -> None:
    """The cause may be a wrong store URL or key prefix. The exit status is 2, because 1 means drift."""
    assert (
        "the store has no board under this key prefix"
        in refused("check", "--store", valkey_url, LIVE_KEY_PREFIX="nobody")[0]
    )


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (["--version"], {"sqlalchemy", "aiohttp", "redis", "starlette"}),
        (["keys", "list", "--data-dir", "/nonexistent"], {"sqlalchemy", "aiohttp", "starlette"}),
        (["load", "--duration", "0"], {"sqlalchemy", "starlette"}),
        (["serve", "--port", "-1"], {"aiohttp"}),
    ],
)
def test_a_command_imports_only_what_it_needs(words: list[str], unused: set[str]) -> None:
    """The command imports no package in `unused`. Importing everything takes seconds on a slow machine."""
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from live.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code, *words], env=BARE, capture_output=True, text=True, timeout=180, check=False
    )
    imported = set(ended.stdout.split())
    assert "live.cli.main" in imported
    assert not imported & unused


@pytest.mark.parametrize("code", ["from live.cli.main import main; main()", "import live.process.preloaded"])
def test_what_a_process_imports_is_never_collected(code: str) -> None:
    """A command and the fork server exclude what they import from garbage collection, and collect what comes later."""
    at_exit = (
        "import atexit, gc; "
        "atexit.register(lambda: print(len(gc.get_objects()), gc.get_freeze_count(), gc.isenabled())); "
    )
    ended = subprocess.run(
        [sys.executable, "-c", at_exit + code, "serve", "--port", "-1"],
        env=BARE, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    collected, frozen, is_enabled = ended.stdout.split()
    assert is_enabled == "True"
    assert int(collected) < 10_000
    assert int(frozen) > 50_000


def test_a_similar_command_is_suggested() -> None:
    """An unknown command is refused."""
    ended = run_live("key", environment=BARE)
    assert ended.returncode == 2
    assert "Did you mean 'keys'?" in ended.stderr
