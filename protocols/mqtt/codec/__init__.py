"""The wire format of MQTT 3.1.1 and 5: packets, their properties and reason codes, read and written.

Everything that a client or a server sends is one of the classes of `packets`. They are read by a `Reader`
(`reader.py`), which is given bytes as they come and returns packets one after another, those that are many as runs:

    reader = Reader(packet_size_max, from_client=True)  # of a server; version is that of CONNECT, from then on
    reader.push(data)
    while (packet := reader.take()) is not None:  # raises MqttError with the reason code
        match packet.kind:  # CONNECT, PUBLISH (a PublishRun), PUBACK ... PUBCOMP (an AckRun or an Ack), ...

They are written by `packet.encode(version)`, where version is 4 (3.1.1) or 5. What is sent often has functions of its
own in `writer.py`: `append_publish` and `acks`.
"""
