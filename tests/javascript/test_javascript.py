"""The page's JavaScript: its types, and under Node the parts that need no DOM."""

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest

from live.domain.ranking import Ranks, Record, diff, with_ranks

ROOT: Final = Path(__file__).parents[2]
TSC: Final = ROOT / ".tools" / "node_modules" / ".bin" / "tsc"
NODE: Final = shutil.which("node")


@pytest.mark.skipif(not TSC.exists(), reason="TypeScript is not installed")
def test_the_types_are_correct() -> None:
    """As `make check` sees them."""
    command: list[str | Path] = [TSC, "--project", ROOT / "tests" / "tools" / "tsconfig.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(not TSC.exists(), reason="TypeScript is not installed")
def test_a_wrong_type_is_noticed(tmp_path: Path) -> None:
    """The check covers each script, and is strict."""
    (tmp_path / "tests" / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "tools" / "tsconfig.json", tmp_path / "tests" / "tools")
    shutil.copytree(ROOT / "static", tmp_path / "static")
    with (tmp_path / "static" / "words.js").open("a") as file:
        file.write("grouped(undefined);\n")
    command: list[str | Path] = [TSC, "--project", tmp_path / "tests" / "tools" / "tsconfig.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "static/words.js" in done.stdout
    assert done.stdout.count("error TS") == 1


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_the_logic_is_correct(tmp_path: Path) -> None:
    """Each script that a test imports is copied beside it, with messages as the server makes them."""
    for path in [*(ROOT / "static").glob("*.js"), *Path(__file__).parent.glob("*.test.js")]:
        shutil.copy(path, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "walks.json").write_bytes(msgspec.json.encode([walk(seed) for seed in range(30)]))
    done = subprocess.run(
        [str(NODE), "--test", "--test-reporter=tap"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 10\n" in done.stdout, done.stdout
    assert "# fail 0\n" in done.stdout


def walk(seed: int) -> dict[str, Any]:
    """A sync and updates of a board with ties, by one of the rules for ranks, and the records after each message."""
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
