"""The policy that sites hold attested code to, and the hardware that vouches for this process."""

import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from consilia.core.errors import PlanError
from consilia.crypto.attestation.attester import Attester
from consilia.crypto.attestation.policy import Policy, registers_of
from consilia.plan.schema import Plan
from consilia.transport.tpm.attester import TpmAttester

DEVICE = "CONSILIA_TPM"


def policy_of(plan: Plan, folder: Path) -> Policy | None:
    """Return the policy that the plan names; None without attested sums.

    Raises:
        PlanError: If the file cannot be read or is none, with every fault.
    """
    if plan.secure_sum.mode != "attested" or plan.secure_sum.policy is None:
        return None
    path, who = folder / plan.secure_sum.policy, "plan key secure_sum.policy"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise PlanError.of(who, needs=f"a file at {path}", got=error.strerror or "an error",
                           hint="The path is relative to the plan file") from None  # fmt: skip
    except (ValueError, RecursionError) as error:
        got = f"{error}"[:120] if isinstance(error, ValueError) else "one that is nested too deep"
        raise PlanError.of(who, needs=f"a TOML file at {path}", got=got,
                           hint="docs/howto/attested-aggregator.md shows one") from None  # fmt: skip
    return Policy.of(table, who=f"attestation policy {path.name}")


@contextmanager
def attester_of(policy: Policy | None) -> Iterator[Attester | None]:
    """Open the hardware that this policy asks for; None without a policy.

    Raises:
        PlanError: If this process has none of its kind.
        TransportError: If it cannot be reached.
    """
    if policy is None:
        yield None
        return
    device = os.environ.get(DEVICE)
    if policy.kind != "tpm" or not device:
        raise PlanError.of(
            'plan key secure_sum.mode = "attested"', needs=f"hardware of kind {policy.kind} at the coordinator",
            got="none" if policy.kind == "tpm" else "a version that can show evidence of a TPM only",
            hint=f"Set {DEVICE} to a TPM, such as /dev/tpmrm0, or take secure_sum.mode = \"masks\"",
        )  # fmt: skip
    with TpmAttester(Path(device), registers_of(policy.measurements[0])) as attester:
        yield attester
