"""What a courier needs from outside: streams to the coordinator, and a memory of messages that outlives the process."""

from typing import Protocol


class Stream(Protocol):
    """Carries packets both ways, in order; used from one event loop."""

    async def send(self, packet: bytes) -> None:
        """Send a packet; returns when the line takes more.

        Raises:
            TransportError: If the stream has ended, with the reason.
        """
        ...

    async def receive(self) -> bytes:
        """Wait for a packet and return it.

        Raises:
            TransportError: If the stream has ended, with the reason.
        """
        ...

    async def close(self) -> None:
        """End the stream and free what it holds."""
        ...


class Link(Protocol):
    """A way to reach the coordinator."""

    @property
    def where(self) -> str:
        """The address, for people."""
        ...

    async def connect(self) -> Stream:
        """Open a stream.

        Raises:
            TransportError: If the coordinator cannot be reached or refuses this site, with the reason.
        """
        ...


class Inbox(Protocol):
    """What a site durably remembers of the messages it was sent; called from one thread."""

    def seen(self, id: bytes, digest: bytes) -> bytes | None:
        """Return the answer kept for a message; None if there is none yet.

        Raises:
            ProtocolError: If the message was seen with another digest, or was answered so long ago that its answer is gone.
        """
        ...

    def begin(self, id: bytes, digest: bytes) -> None:
        """Remember a message before it is handled."""
        ...

    def keep(self, id: bytes, answer: bytes) -> None:
        """Remember the answer before it is sent."""
        ...
