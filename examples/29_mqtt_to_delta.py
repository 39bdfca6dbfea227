"""Take what devices say over MQTT to a Delta table, each message once: a stream is bound to their topics, and archived.

    paho ──> topic devices/7/celsius ──> amq.topic ──> stream "measured" ──archive──> Delta table ──> polars

A node that is to do this all the time has it in its configuration: see `[[pipelines]]`.

Run `python examples/29_mqtt_to_delta.py`; nothing else has to run. It needs `pip install 'leveret[delta]'`, paho-mqtt,
pika and polars.
"""

import subprocess
import sys
import tempfile

import paho.mqtt.client as mqtt
import pika
import polars

from leveret import ThreadedNode, embedded

SETTINGS = {
    "listeners": [{"address": "127.0.0.1:0", "protocols": ["amqp091", "mqtt"]}],
    "http": {"enabled": True, "address": "127.0.0.1:0"},
}


def bind(url: str) -> None:
    """Have a stream keep whatever devices measure."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("measured", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind("measured", "amq.topic", "devices.*.celsius")


def measure(host: str, port: int) -> None:
    """Publish a few values as a device does, and wait until the broker has them."""
    device = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "greenhouse", protocol=mqtt.MQTTv5)
    device.username_pw_set("guest", "guest")
    device.connect(host, port)
    device.loop_start()
    for number in range(6):
        value = f"{18 + number / 2}"
        device.publish(f"devices/{number % 2}/celsius", value, qos=1).wait_for_publish(10)
    device.disconnect()
    device.loop_stop()


with tempfile.TemporaryDirectory() as folder, ThreadedNode(embedded(SETTINGS)) as node:
    bind(node.url)
    measure(node.host, node.port)
    endpoint = f"http://{node.node.addresses[-1]}"
    command = ["pipeline", "archive", "--endpoint", endpoint, "measured", f"{folder}/lake"]
    subprocess.check_output([sys.executable, "-m", "leveret", *command], stderr=subprocess.STDOUT)
    rows = polars.read_delta(f"{folder}/lake").sort("offset")

devices = rows["routing_key"].str.split(".").list.get(1)
values = rows["body"].cast(polars.String).cast(polars.Float64)
print(f"{rows.height} messages in the table")
means = polars.DataFrame({"device": devices, "celsius": values}).group_by("device").mean().sort("device")
for device, celsius in means.iter_rows():
    print(f"device {device}: {celsius:.2f} °C")
