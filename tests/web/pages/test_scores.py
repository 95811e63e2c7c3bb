"""Scores with units, decimals and durations: Python and JavaScript write them alike, on pages and in messages."""

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from live.domain.ranking import Record
from live.domain.text import MINUS, ScoreFormat
from live.web.pages.language import languages
from live.web.pages.words import gap_words, short
from live.web.parts import assets
from tests.harness.boards import BOARD
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

ENGLISH: Final = languages()["en"]
NODE: Final = shutil.which("node")
CLIENT: Final = assets("static") / "client"
EURO: Final[dict[str, Any]] = {"unit": "€", "scale": 2}
RUN: Final[dict[str, Any]] = {"scale": 3, "format": "duration"}
CASES: Final[list[tuple[dict[str, Any], int, str, str]]] = [
    ({"unit": "km"}, 1234, "1,234\u00a0km", "1234\u00a0km"),
    ({"unit": "km"}, -98_765_432, f"{MINUS}98,765,432\u00a0km", f"{MINUS}98.7 M\u00a0km"),
    ({"scale": 1}, 5, "0.5", "0"),
    ({"scale": 9}, -1, f"{MINUS}0.000000001", f"{MINUS}0"),
    (EURO, 123_450, "1,234.50\u00a0€", "1234\u00a0€"),
    (EURO, -7, f"{MINUS}0.07\u00a0€", f"{MINUS}0\u00a0€"),
    (EURO, 0, "0.00\u00a0€", "0\u00a0€"),
    (EURO, 2**53 - 1, "90,071,992,547,409.91\u00a0€", "90.0 T\u00a0€"),
    (RUN, 83_456, "1:23.456", "1:23"),
    (RUN, 59_999, "0:59.999", "0:59"),
    (RUN, 3_600_000, "1:00:00.000", "1:00:00"),
    (RUN, -60_001, f"{MINUS}1:00.001", f"{MINUS}1:00"),
    ({"format": "duration"}, 9_000_061, "2,500:01:01", "2,500:01:01"),
]  # fmt: skip


@pytest.mark.parametrize(("choices", "number", "text", "brief"), CASES)
def test_a_score_is_written_in_the_format_of_its_board(
    choices: dict[str, Any], number: int, text: str, brief: str
) -> None:
    """`write` gives a score in full, and `short` gives a form for little room."""
    score_format = ScoreFormat(**choices)
    assert (score_format.write(number), short(ENGLISH, number, score_format)) == (text, brief)


def written(cases: list[tuple[dict[str, Any], int]], *scripts: Path) -> list[list[str]]:
    """What each version of the script writes for scores."""
    script = f"""
        import {{ plain }} from {json.dumps((CLIENT / "words.js").as_uri())};
        for (const script of {json.dumps([path.as_uri() for path in scripts])}) {{
          const {{ writingOf }} = await import(script);
          console.log(JSON.stringify({json.dumps(cases)}.map(([format, number]) => {{
            const writing = writingOf(format, plain);
            return writing.grouped(number);
          }})));
        }}
    """
    done = subprocess.run([str(NODE), "--input-type=module"], input=script, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_scripts_write_scores_as_the_server_does() -> None:
    """The test compares `CASES` and 1,000 random scores."""
    chance = random.Random(18)
    cases = [(choices, number) for choices, number, _, _ in CASES]
    for _ in range(1000):
        scale, format_ = chance.randrange(10), chance.choice(["number", "duration"])
        unit = chance.choice(["", "€", "% of $&"]) if format_ == "number" else ""
        number = chance.randrange(-(2 ** chance.randrange(1, 54)) + 1, 2 ** chance.randrange(1, 54))
        cases.append(({"unit": unit, "scale": scale, "format": format_}, number))
    formats = [(ScoreFormat(**choices), number) for choices, number in cases]
    expected = [one.write(number) for one, number in formats]
    assert written(cases, CLIENT / "units.js") == [expected]


async def test_pages_show_scores_with_their_unit_and_json_states_it(valkey_url: str) -> None:
    """Scores in the API stay integers, and a change of the definition shows everywhere."""
    settings = fresh_settings(valkey_url, anonymous_admin=True)
    async with run_server(settings, [BOARD]) as url, httpx.AsyncClient(base_url=url) as client:
        (await client.put("/v1/boards/donors", json={"window": "forever", **EURO})).raise_for_status()
        events = [
            {"board": "donors", "key": member, "amount": amount} for member, amount in (("Ada", 123_450), ("Bob", 5))
        ]
        (await client.post("/v1/events", json=events)).raise_for_status()
        document = (await client.get("/v1/boards/donors")).json()
        assert [record["score"] for record in document["records"]] == [123_450, 5]
        assert {name: document[name] for name in ("unit", "scale", "format")} == {**EURO, "format": "number"}
        assert (await client.get("/v1/boards/donors/definition")).json() == {"window": "forever", **EURO}
        for path in ("/boards/donors", "/boards/donors/records/Ada", "/overlay/donors", "/boards/donors?display=wall"):
            page = (await client.get(path)).text
            assert ">1,234.50\u00a0€<" in page, path
            assert "data-format=" in page
        assert 'data-gap="+1,234.45\u00a0€"' in page
        found = [await client.get(f"/v1/{path}") for path in ("boards/donors/records?key=Ada", "records/Ada")]
        own = await client.get("/v1/boards/donors/records/Ada")
        for record in (own.json(), *(answer.json()["records"][0] for answer in found)):
            assert (record["score"], {name: record[name] for name in ("unit", "scale", "format")}) == (
                123_450, {**EURO, "format": "number"},
            )  # fmt: skip
        table = (await client.get("/boards/donors/records.csv")).content.decode("utf-8-sig").splitlines()
        assert table == ["rank,member,score,written", '1,Ada,123450,"1,234.50\u00a0€"', "2,Bob,5,0.05\u00a0€"]
        contest = {"window": "forever", "types": ["vote"], "votes": {}, "unit": "votes"}
        (await client.put("/v1/boards/contest", json=contest)).raise_for_status()
        (await client.post("/v1/events", json={"type": "vote", "key": "Ada", "actor": "a"})).raise_for_status()
        for path in ("/boards/contest", "/boards/contest/records/Ada"):  # the heading says what is counted
            assert ">1<" in (await client.get(path)).text, path
            assert "1\u00a0votes" not in (await client.get(path)).text, path
            assert ">1\u00a0votes<" in (await client.get(f"{path}?lang=zh-Hans")).text, path
        (await client.patch("/v1/boards/donors", json={"unit": None, "scale": 0})).raise_for_status()
        document = (await client.get("/v1/boards/donors")).json()
        assert not {"unit", "scale", "format"} & document.keys()
        assert ">123,450<" in (await client.get("/boards/donors")).text


def test_gaps_have_the_unit_too() -> None:
    """A gap keeps its cents, however long it is."""
    euro, record = ScoreFormat("€", 2), Record("b", 100_000, 2)
    gaps = [gap_words(ENGLISH, record, Record("a", above, 1), None, euro) for above in (100_250, 10**12)]
    assert gaps == [f"{MINUS}2.50\u00a0€", f"{MINUS}9,999,999,000.00\u00a0€"]
