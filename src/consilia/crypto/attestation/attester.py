"""The port to the hardware that a coordinator runs on."""

from typing import Protocol

from consilia.crypto.attestation.evidence import Evidence


class Attester(Protocol):
    """What a coordinator needs from its hardware; `transport.tpm` has one for TPM 2.0."""

    @property
    def key(self) -> bytes:
        """The public key that updates are sealed to."""

    def evidence(self, *, context: bytes, nonce: bytes) -> Evidence:
        """Return evidence that binds the key to this run and to the site's nonce; both 32 bytes.

        Raises:
            TransportError: If the hardware cannot be reached or refuses.
        """

    def open_sealed(self, sealed: bytes, *, info: bytes) -> bytes:
        """Return what a site sealed to the key.

        Raises:
            ProtocolError: If it was sealed to another key or for another `info`, or changed on the way.
            TransportError: If the hardware cannot be reached or refuses, as a TPM does after the measured code changed.
        """
