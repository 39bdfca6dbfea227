"""The calls that nearly all calls of a connection are: messages and acks, to be compiled with who makes them."""

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Traffic(ABC):
    """What comes on open channels. As in `Handler`: an AmqpError ends the channel or the connection."""

    __slots__ = ()

    @abstractmethod
    def on_publish(self, channel: int, publish: bytes, properties: bytes, body: bytes) -> None:
        """A whole message. `publish` are the undecoded arguments of basic.publish, unchecked.

        It is the same object for as long as a channel repeats itself. `properties` are the content header from
        its flags on, unchecked as well.
        """

    def on_publish_run(self, channel: int, publish: bytes, properties: bytes, bodies: list[bytes]) -> int:
        """Messages that differ in their bodies only, whose sizes may differ, too. Answers how many were taken.

        Only as many as raise nothing and need no answer of their own: what follows has not been touched, and the next
        one comes in `on_publish`, like all of them if this is 0. Must not call the connection, but to halt it.
        """
        return 0

    @abstractmethod
    def on_ack(self, channel: int, delivery_tag: int, multiple: bool) -> None:
        """basic.ack."""
