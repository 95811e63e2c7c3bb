"""The page's JavaScript: its types, and under Node the parts that need no DOM."""

import asyncio
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest

from live.domain.board_file import make_board
from live.domain.choices import Choices, Votes
from live.domain.ranking import Ranks, Record, diff, with_ranks
from live.domain.text import begins_word, form_of
from live.web.static import CLIENT, bundle, read
from tests.domain.test_text import FINDING
from tests.harness.boards import rolling_board
from tests.harness.ingest import make_key
from tests.harness.mutation import must_be_caught
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings
from tests.harness.tokens import SECRET

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[2]
TSC: Final = ROOT / ".tools" / "node_modules" / ".bin" / "tsc"
NODE: Final = shutil.which("node")
LETTERS: Final = "aBz9 -.\u0301ÅéßŁ\u0131İ\u03c3ςΣΰ北かがกิאָبّйЁ한\U00020001\U0001f600ﬁ②\u2019"
TESTS: Final = [
    name
    for path in Path(__file__).parent.glob("*.test.js")
    for name in re.findall(r"^ *test\(", path.read_text(encoding="utf-8"), re.MULTILINE)
]

# For each mistake: the test that detects it, the script, the right code, and the wrong code that replaces it.
MISTAKES: Final = {
    "an update after a gap is applied": (
        "schedules",
        "state.js",
        "if (!follows || board.offset !== message.since) throw",
        "if (!follows) throw",
    ),
    "silence is not noticed": (
        "schedules",
        "connection.js",
        'this.#after("silence", this.setting.staleAfter, () => this.#checkSilence());',
        "",
    ),
    "the position of another epoch is kept": (
        "schedules",
        "state.js",
        "    epoch: message.epoch,",
        '    epoch: board?.epoch ?? "e1",',
    ),
    "a removed record stays": (
        "schedules",
        "state.js",
        "const moving = new Set(removed);",
        "const moving = new Set();",
    ),
    "a batch that is sent again has new ids": (
        "producer",
        "producer.js",
        "headers, body, signal",
        """headers, body: body.replaceAll('"id":"', `$&${now()}`), signal""",
    ),
    "a request that the server refuses is sent again": (
        "producer",
        "producer.js",
        "if (![...NOT_TAKEN, ...LOST].includes(response.status)) throw refused;",
        "if (response.ok) throw refused;",
    ),
    "the buffer is bounded in events": (
        "producer",
        "producer.js",
        "if (this.pendingBytes + size > maxBytes)",
        "if (this.#unsettled.size > maxBytes)",
    ),
    "events with a response take room": ("producer", "producer.js", "this.pendingBytes -= size;", ""),
    "the producer does not wait for as long as the server asks": (
        "producer",
        "producer.js",
        "if (seconds >= 0) pause =",
        "if (seconds < 0) pause =",
    ),
}


@pytest.mark.skipif(not TSC.exists(), reason="TypeScript is not installed")
def test_a_wrong_type_is_detected(tmp_path: Path) -> None:
    """The type check of `make check` covers each script, is strict, and finds only the wrong type."""
    (tmp_path / "tests" / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "tools" / "tsconfig.json", tmp_path / "tests" / "tools")
    shutil.copytree(ROOT / "static", tmp_path / "static")
    with (tmp_path / "static" / "client" / "words.js").open("a") as file:
        file.write("grouped(undefined);\n")
    command: list[str | Path] = [TSC, "--project", tmp_path / "tests" / "tools" / "tsconfig.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "static/client/words.js" in done.stdout
    assert done.stdout.count("error TS") == 1


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_the_logic_is_correct(tmp_path: Path) -> None:
    """The scripts pass their tests. Two tests compare with what the server's functions have made."""
    tests = copied(tmp_path)
    chance = random.Random(4)
    texts = [*FINDING, *("".join(chance.choices(LETTERS, k=chance.randrange(1, 9))) for _ in range(300))]
    pairs = [(chance.choice(texts), chance.choice(texts)) for _ in range(5000)]
    pairs += [(text[start : start + 3], text) for text in texts for start in range(len(text))]
    finding = [(one, other, begins_word(form_of(one), form_of(other))) for one, other in pairs]
    (tests / "finding.json").write_bytes(msgspec.json.encode([[(text, form_of(text)) for text in texts], finding]))
    (tests / "walks.json").write_bytes(msgspec.json.encode([walk(seed) for seed in range(30)]))
    done = subprocess.run(
        [str(NODE), "--test", "--test-reporter=tap", tests], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"# pass {len(TESTS)}\n" in done.stdout, done.stdout
    assert "# fail 0\n" in done.stdout


def test_the_pages_import_only_the_entry_points() -> None:
    """The pages import only modules of the client that every user of the package can import, and parts of these."""
    public = {f"./client/{name}" for name in (*CLIENT, "dom.js", "row-words.js")}
    for script in (ROOT / "static").glob("*.js"):
        text = script.read_text(encoding="utf-8")
        used = set(re.findall(r'^(?:im|ex)port .*"(\./client/[^"]+)";$', text, re.MULTILINE))
        assert used <= public, script.name


@pytest.mark.mutant
@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_detected(mistake: str, tmp_path: Path) -> None:
    """A client with a mistake ends a schedule with another state than the server.

    A producer with a mistake fails its tests.
    """
    test, name, right, wrong = MISTAKES[mistake]
    tests = copied(tmp_path)
    script = tmp_path / "static" / "client" / name
    text = script.read_text(encoding="utf-8")
    assert text.count(right) == 1
    script.write_text(text.replace(right, wrong), encoding="utf-8")
    checked = subprocess.run([str(NODE), "--check", script], capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr
    command: list[str | Path] = [str(NODE), "--test-reporter=tap", tests / f"{test}.test.js"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    with must_be_caught(mistake):
        assert "AssertionError" not in done.stdout  # a failed assertion throws an error with this name


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_the_served_client_works(tmp_path: Path) -> None:
    """The tests of the client pass with its bundle, so the minifier breaks nothing."""
    tests = copied(tmp_path)
    (tmp_path / "static" / "client" / "live-board.js").write_text(bundle("client/live-board.js", read))
    done = subprocess.run([str(NODE), "--test", tests / "client.test.js"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
async def test_the_client_agrees_with_a_real_server(valkey_url: str, tmp_path: Path) -> None:
    """The client uses a WebSocket, an event stream and polls."""
    copied(tmp_path)
    shutil.copy(Path(__file__).parent / "server.mjs", tmp_path)
    async with run_server(fresh_settings(valkey_url), [rolling_board()]) as url:
        node = await asyncio.create_subprocess_exec(
            str(NODE), "--experimental-websocket", "--no-warnings", "server.mjs", url,
            cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await asyncio.wait_for(node.communicate(), 60)
    assert (node.returncode, output) == (0, b"all transports agree\n"), output.decode()


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
async def test_a_watch_goes_on_with_the_next_token(valkey_url: str, tmp_path: Path) -> None:
    """With each transport, no change is lost or shown twice, and the board is always live. The token can also vote."""
    copied(tmp_path)
    shutil.copy(Path(__file__).parent / "tokens.mjs", tmp_path)
    settings = fresh_settings(valkey_url, token_secret=SECRET)
    key = await make_key(settings, "shop")
    cup = Choices(id="cup", votes=Votes(per_key=1), window_choice="forever")
    boards = [make_board(Choices(id="staff", visibility="private")), make_board(cup)]
    async with run_server(settings, boards) as url:
        node = await asyncio.create_subprocess_exec(
            str(NODE), "--experimental-websocket", "--no-warnings", "tokens.mjs", url, SECRET, key,
            cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await asyncio.wait_for(node.communicate(), 60)
    assert (node.returncode, output) == (0, b"no gap\n"), output.decode()


def copied(folder: Path) -> Path:
    """Copy the scripts and their tests to a folder that Node treats as modules; returns the folder of the tests."""
    tests = folder / "tests" / "javascript"
    shutil.copytree(ROOT / "static", folder / "static")
    shutil.copytree(Path(__file__).parent, tests, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / "package.json").write_text('{"type": "module"}')
    return tests


def walk(seed: int) -> dict[str, Any]:
    """Return a sync and updates of a board with ties and one kind of ranks, and the records after each message."""
    chance = random.Random(seed)
    ranks = get_args(Ranks)[seed % 3]
    tops = [top(chance, ranks) for _ in range(12)]
    head = {"epoch": "e", "rank_count": 9, "total_score": None}
    sync = {"type": "sync", "board": "b", "offset": 0, "recovered": False, "ranks": ranks, "records": tops[0], **head}
    messages = [sync]
    for offset in range(1, len(tops)):
        changed, removed = diff(tops[offset - 1], tops[offset])
        update = {"type": "update", "since": offset - 1, "offset": offset, "changed": changed, "removed": removed}
        messages.append({**update, **head})
    return {"messages": messages, "records": tops}


def top(chance: random.Random, ranks: Ranks) -> list[Record]:
    """Some members with few different scores, in order."""
    members = chance.sample([f"m{number}" for number in range(12)], chance.randint(0, 10))
    scores = sorted(((chance.randint(1, 5), member) for member in members), key=lambda pair: (-pair[0], pair[1]))
    return with_ranks([Record(member, score, 0) for score, member in scores], ranks)
