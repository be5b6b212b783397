"""The coordinator's side of a TPM 2.0: raw commands over a character device or a Unix socket. Nothing to install.

Here: marshalling, and `TpmAttester`, which makes evidence and opens what was sealed to the TPM's key.
Not here: verification, which sites do without a TPM (`crypto.attestation`).
"""

from consilia.transport.tpm.attester import TpmAttester, measure

__all__ = ["TpmAttester", "measure"]
