"""The table of settings: defaults, the environment, flags, and messages about invalid values."""

from pathlib import Path

import msgspec
import pytest

from live.errors import SetupError
from live.settings import LONGEST_CACHED, METAS, Settings, environment_name, load_settings

FIELDS = {field.name: field for field in msgspec.structs.fields(Settings)}
DURATIONS = sorted(name for name, field in FIELDS.items() if isinstance(field.default, float))


def mistakes(**environment: str) -> list[str]:
    """Return the lines of the message that refuses an environment."""
    with pytest.raises(SetupError) as caught:
        load_settings(environment)
    return str(caught.value).splitlines()


def test_every_setting_has_a_meaning_and_a_default() -> None:
    """Each setting has a description for `--help` and docs/settings.md, without a full stop at its end."""
    for name, field in FIELDS.items():
        meaning = METAS[name].description
        assert meaning, name
        assert meaning[0] in "`ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", name
        assert not meaning.endswith("."), name
        extra = METAS[name].extra
        assert extra is not None
        assert extra["costs"], name
        assert not extra["costs"].endswith("."), name
        assert field.default is not msgspec.NODEFAULT


def test_without_variables_the_defaults_apply() -> None:
    """An empty variable counts as not set."""
    assert load_settings({}) == Settings()
    assert load_settings({environment_name(name): "" for name in FIELDS}) == Settings()


def test_a_flag_takes_precedence_over_the_environment() -> None:
    """Flags come first, then the environment, then the default. A flag that is None was not given."""
    environment = {"LIVE_PORT": "1234", "LIVE_HOST": "::1"}
    settings = load_settings(environment, port=4321, host=None)
    assert (settings.port, settings.host, settings.workers) == (4321, "::1", 1)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("LIVE_PORT", "0", 0),
        ("LIVE_MAX_BODY", "1", 1),
        ("LIVE_DATA_DIR", "/a/b", Path("/a/b")),
        ("LIVE_BOARDS", "boards.toml", Path("boards.toml")),
        ("LIVE_DEMO", "true", True),
        ("LIVE_DEMO", "1", True),
        ("LIVE_DEMO", "false", False),
        ("LIVE_CONFLATION_INTERVAL", "5ms", 0.005),
        ("LIVE_STORE_TIMEOUT", "1.5m", 90.0),
        ("LIVE_CACHE", "off", 0),
        ("LIVE_CACHE", "2000ms", 2),
        ("LIVE_CACHE", "1m", LONGEST_CACHED),
        ("LIVE_ALLOWED_ORIGINS", "https://a.example, https://b.example,", ("https://a.example", "https://b.example")),
        ("LIVE_ALLOWED_HOSTS", "A.example:80, *.b.example, ::1", ("a.example", "*.b.example", "::1")),
        ("LIVE_TRUSTED_PROXIES", "10.0.0.1, 192.0.2.0/24,fd00::/8", ("10.0.0.1/32", "192.0.2.0/24", "fd00::/8")),
        ("LIVE_LOG_LEVEL", "warning", "warning"),
    ],
)
def test_a_variable_has_the_type_of_its_setting(name: str, text: str, value: object) -> None:
    """A text becomes a number, a path, a duration, a list or a switch."""
    settings = load_settings({name: text})
    assert getattr(settings, name.removeprefix("LIVE_").lower()) == value
    assert type(getattr(settings, name.removeprefix("LIVE_").lower())) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("LIVE_PORT", "http", 'expected a whole number from 0 to 65,535, got "http"'),
        ("LIVE_PORT", "65536", 'expected a whole number from 0 to 65,535, got "65536"'),
        ("LIVE_PORT", "-1", 'expected a whole number from 0 to 65,535, got "-1"'),
        ("LIVE_WORKERS", "0", 'expected a whole number from 1 to 64, got "0"'),
        ("LIVE_WORKERS", "1.5", 'expected a whole number from 1 to 64, got "1.5"'),
        ("LIVE_DEMO", "perhaps", 'expected true or false, got "perhaps"'),
        ("LIVE_CACHE", "1.5s", "'1.5s' is neither `off` nor whole seconds from 1s to 60s"),
        ("LIVE_CACHE", "2m", "'2m' is neither `off` nor whole seconds from 1s to 60s"),
        ("LIVE_LOG_LEVEL", "loud", "there is no value `loud`; there are: debug, error, info, warning"),
        ("LIVE_KEY_PREFIX", "a:{b}", 'expected a text of 1 to 32 of a-z, 0-9, - and _, such as live-2, got "a:{b}"'),
        (
            "LIVE_ALLOWED_HOSTS",
            "a/b",
            "'a/b' is not a host name, an address, `*.` with a name, or `*`, such as board.example.org",
        ),
        (
            "LIVE_TRUSTED_PROXIES",
            "10.0.0.1/8",
            "10.0.0.1/8 has host bits set; expected an address or a network such as 10.0.0.0/8 or ::1",
        ),
        (
            "LIVE_STORE_TIMEOUT",
            "1",
            "'1' is not a duration; expected a number and ms, s, m, h or d, like 24h",
        ),
    ],
)
def test_an_invalid_value_is_reported_with_its_variable(name: str, text: str, message: str) -> None:
    """One line has the variable, the value and the mistake."""
    assert mistakes(**{name: text}) == [f"{name} (or its flag) = {text!r}: {message}"]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("*", "`*` is not allowed; list each origin"),
        ("https://a.example,*", "`*` is not allowed; list each origin"),
        ("null", "'null' is not an origin; expected scheme, host and port"),
        ("a.example", "'a.example' is not an origin"),
        ("https://", "'https://' is not an origin"),
        ("https://*.a.example", "'https://*.a.example' is not an origin"),
        ("https://a.example:99999", "is not an origin"),
        ("https://user@a.example", "is not an origin"),
        ("https://a.example/", "write https://a.example"),
        ("https://a.example/page?x", "write https://a.example"),
        ("HTTPS://A.example", "write https://a.example"),
        ("https://a.example:443", "write https://a.example"),
        ("http://[::1]:80", "write http://[::1]"),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused(text: str, advice: str) -> None:
    """The server refuses such an origin at its start, because it would never match. The message says what to write."""
    (line,) = mistakes(LIVE_ALLOWED_ORIGINS=text)
    assert line.startswith("LIVE_ALLOWED_ORIGINS (or its flag) = ")
    assert advice in line


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "https://a.example:8443", "http://[::1]:8080", "capacitor://localhost"]
)
def test_a_valid_origin_is_accepted(origin: str) -> None:
    """An origin has its port unless it is the scheme's default. Schemes other than HTTP are accepted too."""
    assert load_settings({"LIVE_ALLOWED_ORIGINS": origin}).allowed_origins == (origin,)


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    """A misspelt setting is refused, because it would have no effect. `LIVE_KEY`, an API key, is allowed."""
    lines = mistakes(LIVE_ALOWED_ORIGINS="https://a.example", LIVE_PROT="80", LIVE_XYZZY="", LIVE_KEY="a.b", PATH="x")
    assert lines == [
        "there is no setting `LIVE_ALOWED_ORIGINS`; did you mean `LIVE_ALLOWED_ORIGINS`?",
        "there is no setting `LIVE_PROT`; did you mean `LIVE_PORT`?",
        "there is no setting `LIVE_XYZZY`",
    ]
    assert mistakes(LIVE_KEYS="a.b") == ["there is no setting `LIVE_KEYS`; did you mean `LIVE_KEY`?"]


def test_all_invalid_values_are_reported_at_once() -> None:
    """Each invalid value has a line, in the order of the table."""
    lines = mistakes(LIVE_WORKERS="none", LIVE_PORT="x", LIVE_MAX_BODY="0", LIVE_HOST="fine")
    assert [line.split(" ")[0] for line in lines] == ["LIVE_PORT", "LIVE_WORKERS", "LIVE_MAX_BODY"]


@pytest.mark.parametrize("name", DURATIONS)
def test_every_duration_has_a_unit(name: str) -> None:
    """No setting accepts bare seconds."""
    assert getattr(load_settings({environment_name(name): "2500ms"}), name) == 2.5
    assert mistakes(**{environment_name(name): "2.5"})
