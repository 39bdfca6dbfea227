"""The configuration: defaults, the three layers, and every problem told at once."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.config.config import Config, ConfigError, load, parse
from leveret.config.docs import documentation
from leveret.config.records import Record, RecordOf, difference, keys_of, variables
from leveret.config.sections import GUEST, PermissionEntry
from leveret.config.types import Address

HASH = base64.b64encode(b"salt" + hashlib.sha256(b"salt" + b"secret").digest()).decode()


def told(
    source: str | bytes | Mapping[str, object], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Where -> the whole sentence; empty if there is nothing to complain about."""
    try:
        parse(source, environ)
    except ConfigError as error:
        return {problem.where: str(problem) for problem in error.problems}
    return {}


def problems(source: str, **environ: str) -> dict[str, str]:
    found = told(source, environ)
    assert found
    return found


def test_a_byte_order_mark_before_a_file_is_passed_over():
    assert told(b"\xef\xbb\xbf[node]\r\nname = 'hare'\r\n") == {}


def test_a_file_that_is_nested_too_deep_is_a_problem_of_the_file():
    [sentence] = told("a = " + "[" * 50_000).values()
    assert "maximum recursion depth" in sentence


def test_an_empty_file_gives_the_defaults():
    assert parse("") == Config()
    assert load() == Config()


def test_the_defaults_serve_amqp_on_both_loopback_addresses():
    config = Config()
    assert [str(entry.address) for entry in config.listeners] == ["127.0.0.1:5672", "[::1]:5672"]
    assert str(config.http.address) == "127.0.0.1:15672"
    assert config.node.data_dir is None
    assert config.users == (GUEST,)
    amqp = config.protocols.amqp091
    assert (amqp.frame_max, amqp.channel_max, amqp.heartbeat_s, config.compat.chosen.frame_min_size) == (
        131072,
        2047,
        60,
        4096,
    )
    amqp10 = config.protocols.amqp10
    assert (amqp10.session_max, amqp10.link_max, amqp10.link_credit, amqp10.idle_timeout_s) == (
        64,
        256,
        170,
        60,
    )
    assert not config.address_v1


# What the file says, where it ends up, and as what.
ACCEPTED = [
    ('node.name = "east"', "node.name", "east"),
    ('node.data_dir = "data"', "node.data_dir", Path("/etc/leveret/data")),
    ('node.data_dir = "/var/lib/leveret"', "node.data_dir", Path("/var/lib/leveret")),
    ("protocols.amqp091.frame_max = 65536", "protocols.amqp091.frame_max", 65536),
    ('protocols.amqp091.frame_max = "64KiB"', "protocols.amqp091.frame_max", 65536),
    ("protocols.amqp10.session_max = 1", "protocols.amqp10.session_max", 1),
    ("protocols.amqp10.addresses.v1 = true", "address_v1", True),
    ('compat.profile = "rabbitmq-3.13"', "address_v1", True),
    ('compat.profile = "rabbitmq-3.13"\nprotocols.amqp10.addresses.v1 = false', "address_v1", False),
    ('limits.message_size_max = "128 mib"', "limits.message_size_max", 128 << 20),
    ("limits.connections_max = 100", "limits.connections_max", 100),
    ('limits.consumer_timeout_ms = "unlimited"', "limits.consumer_timeout_ms", None),
    ('disk.free_limit = "1GB"', "disk.free_limit", 1_000_000_000),
    ("memory.watermark = 0.5", "memory.watermark", 0.5),
    ('memory.watermark = "512MiB"', "memory.watermark", 512 << 20),
    ('http.address = "[::]:0"', "http.address", Address("::", 0)),
    ('http.address = "localhost:15672"', "http.address", Address("localhost", 15672)),
    ('plugins.folders = ["plugins"]', "plugins.folders", (Path("/etc/leveret/plugins"),)),
    (
        "protocols.mqtt = {enabled = true, port = 1}",
        "protocols.others",
        {"mqtt": {"enabled": True, "port": 1}},
    ),
    ('compat.profile = "rabbitmq-4"', "compat.profile", "rabbitmq-4"),
]


@pytest.mark.parametrize(("source", "path", "value"), ACCEPTED)
def test_a_key_is_read_as_documented(source: str, path: str, value: object):
    found: object = parse(source, folder=Path("/etc/leveret"))
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value


# What the file says, where the problem is, what was found.
REFUSED = [
    ('listeners = [{address = "localhost"}]', "listeners[0].address", '"localhost"'),
    ('listeners = [{address = "1.2.3.4:70000"}]', "listeners[0].address", "ports end at 65535"),
    ('listeners = [{address = "1.2.3.400:1"}]', "listeners[0].address", '"1.2.3.400:1"'),
    ('listeners = [{address = "[::g]:1"}]', "listeners[0].address", '"[::g]:1"'),
    ("listeners = [{}]", "listeners[0].address", "found nothing"),
    ('listeners = [{address = "a:1", protocols = []}]', "listeners[0].protocols", "an empty list"),
    ('listeners = [{address = "a:1"}, {address = "a:1"}]', "listeners[1].address", '"a:1"'),
    ("protocols.amqp091.frame_max = 12", "protocols.amqp091.frame_max", "from 4KiB to 16MiB"),
    ("protocols.amqp091.heartbeat_s = true", "protocols.amqp091.heartbeat_s", "found true"),
    ("protocols.amqp091.enabled = 1", "protocols.amqp091.enabled", "true or false"),
    ('protocols.mqtt.enabled = "no"', "protocols.mqtt.enabled", "true or false"),
    ("protocols.mqtt = 1", "protocols.mqtt", "a table"),
    ("limits.message_size_max = 536870913", "limits.message_size_max", "512MiB"),
    ('disk.free_limit = "50 apples"', "disk.free_limit", '"50 apples"'),
    ('disk.free_limit = "50iB"', "disk.free_limit", '"50iB"'),
    ("memory.watermark = -0.1", "memory.watermark", "found -0.1"),
    ("memory.watermark = nan", "memory.watermark", "found nan"),
    ('compat.flow_mechanism = "stop"', "compat.flow_mechanism", '"block" or "channel-flow"'),
    ('flow.mechanism = "block"', "flow.mechanism", "accepted: `compat.flow_mechanism`"),
    (
        "protocols.amqp091.frame_min = 8192",
        "protocols.amqp091.frame_min",
        "accepted: `compat.frame_min_size`",
    ),
    (
        'users = [{name = "a", permissions = {"/" = {read = "("}}}]',
        'users[0].permissions."/".read',
        "a regular",
    ),
    ('users = [{name = "a", permissions = {"/x" = {}}}]', "users[0].permissions", '"/x"'),
    ('users = [{name = "a"}, {name = "a"}]', "users[1].name", '"a"'),
    ('users = [{name = "a", password_hash = "abc"}]', "users[0].password_hash", "(hidden)"),
    ('users = "guest"', "users", "found a string"),
    ("virtual_hosts = []", "virtual_hosts", "an empty list"),
    (
        'policies = [{name = "p", pattern = "a", definition = {max-lenth = 1}}]',
        "policies[0].definition",
        "max-lenth",
    ),
    (
        'policies = [{name = "p", pattern = "a", virtual_host = "x", definition = {expires = 1}}]',
        "policies[0].virtual_host",
        '"x"',
    ),
    ('security.anonymous_user = "nobody"', "security.anonymous_user", '"nobody"'),
    ('compat.profile = "rabbit"', "compat.profile", '"rabbitmq-4"'),
    ("compat.immediate = 3", "compat.immediate", "true or false"),
    ("compat.imediate = true", "compat.imediate", "did you mean 'immediate'?"),
    ("listener = []", "listener", "did you mean 'listeners'?"),
    ("protocols.amqp091.frame_mx = 1", "protocols.amqp091.frame_mx", "did you mean 'frame_max'?"),
    ("node = 2024-01-01", "node", "a date or time"),
    ("protocols.mqtt.since = 2024-01-01", "protocols.mqtt.since", "a string, a number"),
    (
        'listeners = [{address = "a:1", protocols = ["amqp091"]}]\nprotocols.amqp091.enabled = false',
        "listeners[0].protocols",
        "which is disabled",
    ),
    (
        'listeners = [{address = "a:1", protocols = ["amqp10"]}]\nprotocols.amqp10.enabled = false',
        "listeners[0].protocols",
        '"amqp10", which is disabled',
    ),
    ('listeners = [{address = "unix:relative"}]', "listeners[0].address", '"unix:/PATH"'),
    ('listeners = [{address = "unix:/"}]', "listeners[0].address", '"unix:/PATH"'),
    (
        f'listeners = [{{address = "unix:/{"x" * 107}"}}]',
        "listeners[0].address",
        "the path of a socket has at most 107 bytes",
    ),
    (
        'listeners = [{address = "a:1", socket_mode = "0600"}]',
        "listeners[0].socket_mode",
        "unix:/PATH, which has a file",
    ),
    (
        'listeners = [{address = "unix:@name", socket_owner = "root"}]',
        "listeners[0].socket_owner",
        "unix:/PATH, which has a file",
    ),
    (
        'listeners = [{address = "unix:/a", socket_mode = "rw"}]',
        "listeners[0].socket_mode",
        "octal digits",
    ),
    (
        'listeners = [{address = "unix:/a"}, {address = "unix:/a"}]',
        "listeners[1].address",
        "listeners[0].address has this one",
    ),
    (
        'listeners = [{address = "10.0.0.1:1"}, {address = "0.0.0.0:1"}]',
        "listeners[1].address",
        "an address of its own: listeners[0].address has 10.0.0.1:1",
    ),
    ('http.address = "127.0.0.1:5672"', "http.address", "listeners[0].address has this one"),
    ('prometheus = {enabled = true, address = "[::]:5672"}', "prometheus.address", "has [::1]:5672"),
    (
        'users = [{name = "a", password = "x"}, {name = "b", password = "x"}, {name = "a", password = "x"}]',
        "users[2].name",
        "a name of its own: users[0] has this one",
    ),
    (
        'compat.profile = "rabbitmq-4"\nprotocols.amqp091.frame_max = 4096',
        "protocols.amqp091.frame_max",
        "at least the smallest frame (8192)",
    ),
    ('auth_http.ca_file = "a.pem"', "auth_http.ca_file", "accepted: `tls.ca`"),
    ('auth_ldap.ca_file = "a.pem"', "auth_ldap.ca_file", "accepted: `tls.ca`"),
    ('oauth.ca_file = "a.pem"', "oauth.ca_file", "accepted: `tls.ca`"),
    (
        'pipelines = [{ sources = ["a"], target = "/a", ca_file = "a.pem" }]',
        "pipelines[0].ca_file",
        "accepted: `tls.ca`",
    ),
    (
        'pipelines = [{ sources = ["a"], target = "/a", tls.certificate = "a.pem" }]',
        "pipelines[0].tls.key",
        "both a certificate and its key",
    ),
    (
        'prometheus.tls = { certificate = "a.pem", key = "a.key", client_ca = "ca.pem" }',
        "prometheus.tls.client_ca",
        "accepted: `ca`",
    ),
    ('oauth.tls.certificate = "a.pem"', "oauth.tls.key", "both a certificate and its key"),
    ('auth_ldap.tls.key = "a.key"', "auth_ldap.tls.certificate", "both a certificate and its key"),
]


@pytest.mark.parametrize(("source", "where", "words"), REFUSED)
def test_a_mistake_is_told_with_its_place_and_what_is_accepted(source: str, where: str, words: str):
    found = problems(source)
    assert list(found) == [where]
    assert words in found[where]
    assert "accepted: " in found[where]


def test_a_name_without_a_file_is_refused_where_no_socket_can_have_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    found = problems('listeners = [{address = "unix:@name"}]')
    assert "only Linux has" in found["listeners[0].address"]


def test_all_problems_are_told_at_once():
    source = "\n".join(
        source
        for source, _, _ in REFUSED
        if source.startswith(
            (
                "memory.watermark = -",
                'disk.free_limit = "50 a',
                "http",
                "flow",
                "node",
                "security",
                "listener =",
            )
        )
    )
    assert set(problems(source)) == {
        "memory.watermark", "disk.free_limit", "flow.mechanism", "node", "security.anonymous_user", "listener",
        "http.address",
    }  # fmt: skip


def test_what_is_not_toml_is_told_with_its_line():
    assert "line 2" in problems("[node]\nname = = 1")["the configuration"]


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "absent.toml")


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path):
    file = tmp_path / "leveret.toml"
    file.write_text('[node]\nname = "file"\n[log]\nlevel = "error"\nformat = "json"\n')
    environ = {"LEVERET_NODE__NAME": "environment", "LEVERET_LOG__LEVEL": "debug"}
    config = load(file, environ, {"node.name": "flag"})
    assert (config.node.name, config.log.level, config.log.format) == ("flag", "debug", "json")


def test_an_override_of_none_takes_the_default():
    assert parse('node.data_dir = "x"', overrides={"node.data_dir": None}).node.data_dir is None


ENVIRONMENT = [
    ("LEVERET_PROTOCOLS__AMQP091__FRAME_MAX", "65536", "protocols.amqp091.frame_max", 65536),
    ("LEVERET_PROTOCOLS__AMQP091__FRAME_MAX", "64KiB", "protocols.amqp091.frame_max", 65536),
    ("LEVERET_PROTOCOLS__AMQP091__MECHANISMS", "PLAIN, X", "protocols.amqp091.mechanisms", ("PLAIN", "X")),
    ("LEVERET_PROTOCOLS__AMQP091__MECHANISMS", '["PLAIN"]', "protocols.amqp091.mechanisms", ("PLAIN",)),
    ("LEVERET_PLUGINS__WATCH", "true", "plugins.watch", True),
    ("LEVERET_NODE__NAME", "7", "node.name", "7"),
    ("LEVERET_MEMORY__WATERMARK", "0.5", "memory.watermark", 0.5),
    ("LEVERET_COMPAT__IMMEDIATE", "false", "compat.rows", {"immediate": False}),
    ("LEVERET_PROTOCOLS__MQTT__PORT", "1883", "protocols.others", {"mqtt": {"port": 1883}}),
    ("LEVERET_HTTP__ADDRESS", "[::1]:80", "http.address", Address("::1", 80)),
]  # fmt: skip


@pytest.mark.parametrize(("variable", "text", "path", "value"), ENVIRONMENT)
def test_a_variable_sets_a_key(variable: str, text: str, path: str, value: object):
    found: object = parse("", {variable: text})
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value


def test_a_list_of_tables_may_come_from_the_environment():
    config = parse("", {"LEVERET_LISTENERS": '[{address = "0.0.0.0:5672"}]'})
    assert [str(entry.address) for entry in config.listeners] == ["0.0.0.0:5672"]


def test_a_problem_names_the_variable_that_set_the_value():
    found = problems("memory.watermark = 0.5", LEVERET_MEMORY__WATERMARK="half")
    assert "(from environment variable LEVERET_MEMORY__WATERMARK)" in found["memory.watermark"]


def test_an_unknown_variable_is_a_problem_with_a_suggestion():
    found = problems("", LEVERET_PROTOCOLS__AMQP091__FRAMEMAX="1", LEVERET_MEMRY__WATERMARK="1")
    assert "did you mean 'LEVERET_MEMORY__WATERMARK'?" in found["LEVERET_MEMRY__WATERMARK"]


def test_a_variable_of_a_former_name_is_a_problem_with_the_new_one():
    for before, now in (("OAUTH__CA_FILE", "OAUTH__TLS__CA"), ("FLOW__MECHANISM", "COMPAT__FLOW_MECHANISM")):
        found = problems("", **{f"LEVERET_{before}": "ca.pem"})
        assert f"did you mean 'LEVERET_{now}'?" in found[f"LEVERET_{before}"]


def test_variables_of_orchestrators_are_left_alone():
    environ = {
        "LEVERET_PORT": "tcp://10.0.0.1:5672",
        "LEVERET_SERVICE_HOST": "10.0.0.1",
        "LEVERET_CONFIG": "x",
    }
    assert parse("", environ) == Config()


def test_passwords_come_from_the_environment_and_from_files(tmp_path: Path):
    (tmp_path / "password").write_text("of-file\n")
    source = """
        [[users]]
        name = "a"
        password_env = "A_PASSWORD"
        [[users]]
        name = "b"
        password_file = "password"
        [[users]]
        name = "c"
        password_hash = "%s"
    """
    config = parse(source % HASH, {"A_PASSWORD": "of-environment"}, folder=tmp_path)
    assert [user.password for user in config.users] == ["of-environment", "of-file", None]
    assert config.users[2].password_hash == HASH


def test_a_password_that_is_not_there_is_told(tmp_path: Path):
    source = """
        users = [
            { name = "a", password_env = "UNSET" },
            { name = "b", password_file = "/absent" },
            { name = "c", password = "x", password_env = "UNSET" },
        ]
    """
    found = problems(source)
    assert set(found) == {
        "users[0].password_env", "users[1].password_file", "users[2].password_env",
    }  # fmt: skip
    assert "UNSET" in found["users[0].password_env"]


def test_a_database_is_named_by_a_connection_string_or_by_a_file_with_one(tmp_path: Path):
    (tmp_path / "dsn").write_text("host=pg password=hunter2\n")
    config = parse('store = {engine = "postgres", postgres = {dsn_file = "dsn"}}', folder=tmp_path)
    assert config.store.postgres.dsn == "host=pg password=hunter2"
    assert "hunter2" not in repr(config)
    assert set(problems('store = {postgres = {schema = "x"}}')) == {"store.postgres"}
    two = 'store = {engine = "postgres", postgres = {dsn = "host=a", dsn_file = "/absent"}}'
    assert set(problems(two)) == {"store.postgres.dsn_file"}
    absent = 'store = {engine = "postgres", postgres = {dsn_file = "/absent"}}'
    assert set(problems(absent)) == {"store.postgres.dsn_file"}
    strange = problems('store = {engine = "postgres", postgres = {dsn = "password=hun ter2"}}')
    assert set(strange) == {"store.postgres.dsn"}
    assert "ter2" not in str(strange)


SECRETS = [
    'users = [{name = "a", password = "hunter2", passwrod = "hunter2"}]',
    'users = [{name = "a", password = ["hunter2"]}]',
    'users = [{name = "a", password = {a = "hunter2"}}]',
    'users = [{name = "a", password_hash = "hunter2"}]',
    'users = "a:hunter2"',
    'users = ["hunter2"]',
]


@pytest.mark.parametrize("source", SECRETS)
def test_no_problem_repeats_a_secret(source: str):
    assert "hunter2" not in str(problems(source))


def test_a_secret_in_a_wrong_variable_is_not_repeated():
    assert "hunter2" not in str(problems("", LEVERET_USERS="hunter2"))


def test_a_printed_user_shows_no_password():
    assert "hunter2" not in repr(parse('users = [{name = "a", password = "hunter2"}]'))


def test_permissions_are_nothing_unless_they_are_given():
    user = parse('users = [{name = "a", permissions = {"/" = {read = "^q"}}}]').users[0]
    assert user.permissions == {"/": PermissionEntry(configure="^$", write="^$", read="^q")}


ANONYMOUS = [
    ("", "guest"),
    ('security.anonymous_user = ""', None),
    ('users = [{name = "guest", password = "secret"}]', None),
    ('users = [{name = "a"}]\nsecurity.anonymous_user = "a"', "a"),
]


@pytest.mark.parametrize(("source", "user"), ANONYMOUS)
def test_nobody_is_let_in_anonymously_once_users_are_configured(source: str, user: str | None):
    assert parse(source).anonymous_user == user


def test_a_compat_profile_fills_in_what_no_key_says():
    profile = parse('compat.profile = "rabbitmq-4"')
    assert profile.memory_watermark == 0.6
    assert parse('compat.profile = "spec"\nmemory.watermark = "1MiB"').memory_watermark == 1 << 20


def test_a_watermark_of_zero_switches_the_alarm_off():
    assert parse("memory.watermark = 0").memory_watermark == 0


def test_the_difference_tells_what_can_be_taken_and_what_needs_a_restart():
    old = Config()
    new = parse(
        'log.level = "debug"\nevents.virtual_host = "x"\nnode.name = "x"\nmemory.watermark = 0.1\nusers = []'
    )
    assert difference(old, new) == (
        ("log.level", "memory.watermark", "users"),
        ("node.name", "events.virtual_host"),
    )
    assert difference(old, old) == ((), ())


def test_every_key_has_a_sentence_and_what_it_accepts():
    for record in records(Config):
        assert record.__doc__
        for known in keys_of(record).values():
            assert known.doc.endswith("."), known.name
            assert known.kind.accepted, known.name


def records(record: type[Record]) -> list[type[Record]]:
    found = [record]
    for known in keys_of(record).values():
        kind: object = known.kind
        while (inner := getattr(kind, "item", None)) is not None:
            kind = inner
        if isinstance(kind, RecordOf):
            found += records(kind.record)
    return found


def test_every_variable_is_understood():
    assert "LEVERET_PROTOCOLS__AMQP091__FRAME_MAX" in set(variables(Config, "LEVERET_"))
    for variable in variables(Config, "LEVERET_"):
        assert variable not in told("", {variable: "\0"})


def test_the_example_file_says_the_defaults():
    source = (Path(__file__).parents[3] / "leveret.example.toml").read_text()
    assert parse(source) == Config()
    examples = re.sub(r"^# (?=\[|\S+ = )", "", source, flags=re.MULTILINE)
    config = parse(examples, {"SHOP_PASSWORD": "x"})
    assert (config.users[0].name, config.policies[0].priority) == ("shop", 0)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(sorted({name for record in records(Config) for name in keys_of(record)}))
tables = st.recursive(
    json_like,
    lambda inner: st.dictionaries(names, inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=20,
)


@given(st.dictionaries(names, tables, max_size=5))
def test_any_table_gives_a_configuration_or_problems(table: dict[str, object]):
    told(table)


@given(st.binary(max_size=50))
def test_any_bytes_give_a_configuration_or_problems(source: bytes):
    told(source)


def test_only_tables_that_are_there_once_have_environment_variables() -> None:
    page = documentation()
    assert "`LEVERET_HTTP__TLS__…`" in page
    assert "## `[listeners.tls]`" in page
    assert "LEVERET_LISTENERS__" not in page
    assert "SERVER_NAMES__" not in page
