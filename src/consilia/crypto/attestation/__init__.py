"""Evidence that a coordinator runs the code a site agreed to, and sealing to the key inside it. Pure: no clock, no device.

Here: parsing and verification of SGX, TDX, Nitro, SEV-SNP and TPM evidence against a site's policy.
Not here: making evidence, which needs the hardware (`transport.tpm`), and reading policies from files.
"""

from consilia.crypto.attestation.evidence import Claims, Evidence, Kind, binding
from consilia.crypto.attestation.policy import Policy
from consilia.crypto.attestation.verify import verify

__all__ = ["Claims", "Evidence", "Kind", "Policy", "binding", "verify"]
