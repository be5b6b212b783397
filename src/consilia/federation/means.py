"""What the coordinator of a run works with."""

from dataclasses import dataclass

from consilia.crypto.attestation.attester import Attester
from consilia.crypto.attestation.policy import Policy
from consilia.crypto.signing import SigningKey
from consilia.rounds.ports import Transport
from consilia.secagg.roster import Roster


@dataclass(frozen=True)
class Means:
    """What the coordinator of a run works with.

    Attributes:
        transport: Moves bytes to and from sites.
        roster: The sites' public keys, where there is a secure sum.
        signing: The coordinator's key, then.
        policy: What sites hold attested code to; None for other sums.
        attester: The hardware that vouches for this process, then.
    """

    transport: Transport
    roster: Roster | None = None
    signing: SigningKey | None = None
    policy: Policy | None = None
    attester: Attester | None = None
