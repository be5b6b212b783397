"""A coordinator whose key lives in a TPM 2.0 and works only while the measured code stands."""

from pathlib import Path
from typing import Self

from consilia.crypto.attestation import tpm, tpm_format
from consilia.crypto.attestation.evidence import Evidence, binding
from consilia.crypto.attestation.sealing import open_p256
from consilia.transport.tpm import commands
from consilia.transport.tpm.link import TpmLink


def measure(path: Path, register: int, digest: bytes) -> None:
    """Extend a register by the hash of code, before that code starts: what a launcher does that was itself measured.

    Args:
        path: A character device such as /dev/tpmrm0, or a software TPM's Unix socket.
        register: 0 to 23; not 16 or 23, which anyone at the machine may set back.
        digest: SHA-256 of the code. The register becomes SHA-256(register || digest).

    Raises:
        TransportError: If the TPM cannot be reached or refuses.
    """
    with TpmLink(path) as link:
        commands.extend(link, register, digest)


class TpmAttester:
    """Evidence and opening by a TPM; see `crypto.attestation.attester.Attester`.

    The key is fresh for every object, so that what was sealed in one run cannot be opened in the next.
    """

    def __init__(self, path: Path, registers: tuple[int, ...]) -> None:
        """Make the keys.

        Args:
            path: A character device such as /dev/tpmrm0, or a software TPM's Unix socket.
            registers: The registers (of the SHA-256 bank, ascending) whose present values the key is bound to; whatever
                measures the code must have extended them before.

        Raises:
            TransportError: If the TPM cannot be reached or refuses.
        """
        self.registers = registers
        self._link = TpmLink(path)
        try:
            self._signer = commands.signing_key(self._link)
            policy = tpm_format.policy_pcr(registers, commands.registers_digest(self._link, registers))
            parent = commands.storage_key(self._link)
            self._opener = commands.agreement_key(self._link, parent.handle, policy)
            commands.flush(self._link, parent.handle)
            self.key = tpm_format.public_area(self._opener.public, "key").point
            self.fingerprint = tpm_format.public_area(self._signer.public, "attestation key").fingerprint
        except BaseException:
            self._link.close()
            raise

    def close(self) -> None:
        """Forget the keys and close the TPM."""
        for loaded in (self._opener, self._signer):
            commands.flush(self._link, loaded.handle)
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def enrolment(self) -> tuple[bytes, bytes]:
        """Return the public areas of endorsement key and attestation key, for `crypto.attestation.credential`."""
        endorsement = commands.endorsement_key(self._link)
        commands.flush(self._link, endorsement.handle)
        return endorsement.public, self._signer.public

    def answer(self, challenge: bytes) -> bytes:
        """Return the secret of a steward's challenge, which shows that this TPM holds both keys.

        Raises:
            TransportError: If the challenge was made for other keys.
        """
        endorsement = commands.endorsement_key(self._link)
        try:
            return commands.activate(self._link, self._signer.handle, endorsement.handle, challenge)
        finally:
            commands.flush(self._link, endorsement.handle)

    def evidence(self, *, context: bytes, nonce: bytes) -> Evidence:
        """Return a quote of the registers and a certificate of the key, both over this run, this nonce and the key."""
        extra = binding(context, nonce, self.key)
        quoted = commands.quote(self._link, self._signer.handle, extra, self.registers)
        certified = commands.certify(self._link, self._opener.handle, self._signer.handle, extra)
        return Evidence("tpm", tpm.body(*quoted, *certified, self._signer.public, self._opener.public), self.key)

    def open_sealed(self, sealed: bytes, *, info: bytes) -> bytes:
        """Return what a site sealed to the key; the TPM refuses after a register changed."""
        return open_p256(
            lambda point: commands.agree(self._link, self._opener.handle, point, self.registers), self.key, sealed,
            info=info, who="A sealed update",
        )  # fmt: skip
