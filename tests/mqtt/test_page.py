"""The page about MQTT says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.config.docs import documented_key
from leveret.config.records import keys_of
from leveret.protocols.mqtt.broker.settings import MqttSettings

PAGE = (Path(__file__).parents[2] / "docs" / "mqtt.md").read_text()


@pytest.mark.parametrize("known", keys_of(MqttSettings).values(), ids=lambda known: known.name)
def test_each_setting_is_on_the_page(known) -> None:
    assert f"\n{documented_key(known)}\n" in PAGE
