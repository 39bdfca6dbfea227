"""Static shovels: those of the configuration file, which alone sets, changes and ends them."""

from __future__ import annotations

import pytest

from leveret.config.config import Config, ConfigError, parse
from leveret.errors import PreconditionFailed
from leveret.features.parameters.components import parameters_of
from leveret.features.shovels.shovels import shovels_of
from leveret.server.node import assembly
from tests.harness.bench import ClientBench

from .yard import Yard

SHOVEL = """
[[shovels]]
name = "s"
src-uri = "amqp://"
src-queue = "from"
dest-uri = "amqp://"
dest-queue = "{}"
"""


def configured(text: str, before: Config | None = None, yard: Yard | None = None) -> Yard:
    config = parse(text)
    if yard is None or before is None:
        return Yard(ClientBench(text))
    assembly.reload(yard.broker, before, config)
    yard.run()
    return yard


def test_a_shovel_of_the_file_moves_messages_and_follows_the_file() -> None:
    first = SHOVEL.format("to")
    yard = configured(first)
    yard.run()
    yard.publish(b"1")
    yard.run()
    assert yard.bodies() == [b"1"]
    assert (yard.shovel.type, yard.shovel.journey.user) == ("static", "guest")
    second = SHOVEL.format("other")
    configured(second, parse(first), yard)
    yard.publish(b"2")
    assert yard.bodies("other") == [b"2"]
    configured("", parse(second), yard)
    assert list(shovels_of(yard.broker)) == []


def test_a_shovel_of_the_file_is_changed_by_the_file_only_and_is_no_parameter() -> None:
    yard = configured(SHOVEL.format("to"))
    yard.run()
    with pytest.raises(PreconditionFailed, match="is in the configuration file"):
        yard.set()
    with pytest.raises(PreconditionFailed, match="is in the configuration file"):
        yard.shovels.delete("/", "s")
    assert list(parameters_of(yard.broker, "/")) == []


def test_a_wrong_shovel_in_the_file_is_told_with_its_place() -> None:
    with pytest.raises(ConfigError) as refused:
        parse(SHOVEL.format("to").replace("src-queue", "src-qeue"))
    assert "did you mean 'src-queue'?" in str(refused.value)
    assert "shovels" in str(refused.value)
    with pytest.raises(ConfigError, match="vhost nowhere not found"):
        configured(SHOVEL.format("to").replace("[[shovels]]", '[[shovels]]\nvirtual_host = "nowhere"'))
