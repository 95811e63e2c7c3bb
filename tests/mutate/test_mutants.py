"""The mutants that `make mutate` draws from."""

from tests.mutate.mutants import mutants_of

SOURCE = """
LIMIT = 5

def refuse(size: int = 1) -> str:
    assert size
    if not size <= LIMIT and "é" != str(size):
        log.info("refused %s", 7)
        raise ValueError("x")
    store.write(size)
    return f"{size - 1}"
"""


def mistakes() -> list[tuple[str, str]]:
    """Return each mutant of the source: its kind, and the changed line."""
    found = []
    for mutant in mutants_of(SOURCE.encode()):
        text = mutant.apply(SOURCE.encode()).decode()
        compile(text, "mutant", "exec")
        found.append((mutant.kind, text.splitlines()[mutant.line - 1].strip()))
    return found


def test_every_kind_of_mistake_is_made_once() -> None:
    """Each mutant changes one place. Defaults, asserts, constants of the module, texts and log lines stay."""
    condition = "(not size <= LIMIT) or ('é' != str(size))"
    assert sorted(mistakes()) == [
        ("`and` and `or` exchanged", f"if ({condition}):"),
        ("a `not` dropped", 'if (size <= LIMIT) and "é" != str(size):'),
        ("a `raise` removed", "pass"),
        ("a call removed", "pass"),
        ("a comparison turned", 'if not ((size) > (LIMIT)) and "é" != str(size):'),
        ("a comparison turned", "if not size <= LIMIT and (('é') == (str(size))):"),
        ("an edge moved", 'if not ((size) < (LIMIT)) and "é" != str(size):'),
    ]
