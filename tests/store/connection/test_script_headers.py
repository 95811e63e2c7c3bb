"""The header of a script documents the store keys, the fields and the flags that it uses."""

import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest

from live.store.board.batch import Batch
from live.store.board.keys import Keys, SystemKeys
from live.store.connection.scripts import load
from tests.harness.scripts import FLAGS, GOOD, PARTS, SOURCES, USED, code_of
from tests.store.connection.headers import Header, parse_header


def test_a_header_names_every_store_key_that_the_source_uses() -> None:
    """The header has the store keys in order, and the code uses their names.

    If the last name stands for several store keys, the code has names only for the store keys before them.
    """
    for name in SOURCES:
        header, code = parse_header(SOURCES[name]), code_of(load(name))
        alone = header.keys[: len(header.keys) - header.more_keys]
        assert len(set(header.keys)) == len(header.keys), name
        named = f"local {', '.join(alone)} = unpack(KEYS, 1, {len(alone)})\n"
        assert code.count(named) == 1, name
        assert set(alone) <= set(re.findall(r"\w+", code.replace(named, ""))), name


def test_every_store_key_is_described_once() -> None:
    """The header describes a store key, or `keys.py` does."""
    known = {*vars(Keys), *vars(SystemKeys), *vars(Keys("live", "posts").table())}
    for name in SOURCES:
        header = parse_header(SOURCES[name])
        assert set(header.keys) - header.described <= known, name


def fields_of(kind: Any) -> Iterator[tuple[str, str]]:
    """Yield the struct and the name of each field of a request and of its parts."""
    for field in msgspec.structs.fields(kind):
        yield kind.__name__, field.name
        for part in (field.type, *get_args(field.type)):
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                yield from fields_of(part)


# Parts of a batch that only the journal keeps.
FOR_JOURNAL = {"producers", "reason"}


def test_a_request_has_the_fields_that_its_script_reads() -> None:
    """The request has exactly the fields that its script reads. The header names the request."""
    for name in SOURCES:
        kind = USED[name].request
        assert parse_header(SOURCES[name]).request == kind.__name__
        code, fields = code_of(load(name)), set(kind.__struct_fields__)
        assert read_from_request(code_of(SOURCES[name])) <= fields <= read_from_request(code)
        assert "ARGV" not in code_of(SOURCES[name]), name
        reign = ["ARGV[2] or ''"] if "unchecked(" in code else []
        assert re.findall(r"\bARGV\b.*", code) == ["ARGV[1]", *reign], name


def read_from_request(code: str) -> set[str]:
    """The fields of the request that some code reads."""
    return set(re.findall(r"\brequest\.(\w+)", code))


def test_every_field_of_a_part_of_a_request_is_read() -> None:
    """At least one of the scripts that receive a field reads it."""
    sent: dict[tuple[str, str], str] = {}
    for name, script in USED.items():
        batch = fields_of(Batch) if name == "add" else ()
        for field in (*fields_of(script.request), *batch):
            sent[field] = sent.get(field, "") + code_of(load(name))
    unread = [field for field, code in sent.items() if not re.search(rf"\.{field[1]}\b", code)]
    assert [field for field in unread if field[1] not in FOR_JOURNAL and field[0] != "SlotEvents"] == []


def test_every_script_has_a_caller() -> None:
    """No file is unused, and each script runs under its own name."""
    assert USED.keys() == SOURCES.keys()
    assert {name: script.source for name, script in USED.items()} == {name: load(name) for name in SOURCES}
    assert len({script.source for script in USED.values()}) == len(USED)


def included(source: str) -> list[str]:
    """The parts that a source includes."""
    return re.findall(r"--@include (\w+)", source)


def test_a_script_is_its_file_with_its_includes() -> None:
    """Every part is used, once in a script and after the parts that it includes. No line with an include is left."""
    assert {name for source in [*SOURCES.values(), *PARTS.values()] for name in included(source)} == PARTS.keys()
    for name, source in SOURCES.items():
        loaded, found = load(name), parts_of(source)
        assert included(loaded) == []
        places = [loaded.find(own(PARTS[part])) for part in found]
        assert places == sorted(places)
        assert places[:1] != [-1]
        lines = sum(own(PARTS[part]).count("\n") for part in found)
        begins = code_of(loaded).count("ARGV") + code_of(loaded).count("cmsgpack.unpack(packed)") + 1
        assert loaded.count("\n") == own(source).count("\n") + lines + begins, name


def parts_of(source: str) -> list[str]:
    """The parts that a source includes, and those that they include, in the order in which they are loaded."""
    found: list[str] = []
    for part in included(source):
        found += [name for name in [*parts_of(PARTS[part]), part] if name not in found]
    return found


def own(source: str) -> str:
    """A source without the lines that include others."""
    return re.sub(r"^--@include \w+\n", "", source, flags=re.MULTILINE)


def test_every_script_declares_its_flags() -> None:
    """Flags are in the first line. Only scripts without a writing command are declared read-only."""
    first = {name: source.partition("\n")[0] for name, source in SOURCES.items()}
    assert first == {name: line for line, names in FLAGS.items() for name in names}
    writes = r"'(H?SET|HSETNX|HDEL|HINCRBY|ZADD|ZREM|SADD|UNLINK|RENAME|PUBLISH|XADD|XTRIM|P?EXPIRE(AT)?)'"
    reading = {name for name in SOURCES if not re.search(writes, load(name))}
    assert reading == FLAGS["#!lua flags=no-writes"]


def test_a_part_uses_only_names() -> None:
    """A part uses neither KEYS nor ARGV, and has only `local` names at its top level."""
    for name in PARTS:
        assert not re.search(r"\b(KEYS|ARGV)\b", code_of(PARTS[name]))
        assert not re.findall(r"^(?!local |if |for .+ do$|  |end|\s*$).+", code_of(PARTS[name]), re.MULTILINE)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("-- KEYS a —", "-- KEYS a, —", "is malformed, or out of order"),
        (
            "-- Request",
            "-- KEYS b... — many: of them\n-- KEYS c\n-- Request",
            "'-- KEYS c' is malformed",
        ),
        ("-- KEYS a —", "-- KEYS a, b —", "describes several store keys"),
        ("-- Request: Plain\n", "", "does not name one request"),
        ("-- Returns {'ok'}\n", "", "does not say what the script returns"),
    ],
)
def test_an_invalid_header_is_refused(before: str, after: str, message: str) -> None:
    """The header has a misplaced name, or does not name its request or its reply."""
    assert before in GOOD
    with pytest.raises(ValueError, match=message):
        parse_header(GOOD.replace(before, after))


def test_a_header_is_read_completely() -> None:
    """`parse_header` returns the names in order, and whether the last name repeats."""
    source = "-- KEYS a, b\n-- KEYS c... — x\n-- Request: Plain\n-- Returns nothing\nreturn 1"
    assert parse_header(source) == Header(("a", "b", "c"), frozenset("c"), more_keys=True, request="Plain")
    assert parse_header("-- Request: Plain\n-- Returns nothing\nreturn 1") == Header(
        (), frozenset(), more_keys=False, request="Plain"
    )
