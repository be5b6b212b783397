from typing import Any

import pytest

from consilia.core.errors import PlanError
from consilia.crypto.attestation import Policy
from consilia.crypto.attestation.policy import registers_of

SNP: dict[str, Any] = {
    "kind": "sev-snp", "measurements": ["ab" * 48], "max_age": 3600, "roots": ["cd" * 32],
    "minimum_tcb": {"bootloader": 3, "tee": 0, "snp": 8, "microcode": 115},
}  # fmt: skip
SGX: dict[str, Any] = {"kind": "sgx", "measurements": ["ab" * 32], "max_age": 60}
NITRO: dict[str, Any] = {
    "kind": "nitro", "measurements": [":".join(["ab" * 48] * 3)], "max_age": 60, "roots": ["cd" * 32],
}  # fmt: skip
TPM: dict[str, Any] = {
    "kind": "tpm",
    "measurements": ["sha256:0,4,14=" + "ab" * 32],
    "max_age": 60,
    "roots": ["cd" * 32],
}
TDX: dict[str, Any] = {"kind": "tdx", "measurements": [":".join(["ab" * 48] * 5)], "max_age": 60}


@pytest.mark.parametrize("table", [SGX, TDX, NITRO, SNP, TPM], ids=lambda table: str(table["kind"]))
def test_a_whole_policy_loads(table: dict[str, Any]) -> None:
    policy = Policy.of(table)
    assert (policy.kind, policy.measurements, policy.max_age) == (
        table["kind"], tuple(table["measurements"]), table["max_age"],
    )  # fmt: skip


def test_quotes_must_be_up_to_date_unless_the_policy_says_otherwise() -> None:
    assert Policy.of(SGX).statuses == ("UpToDate",)
    assert Policy.of(SGX).advisories == ()
    assert Policy.of({**SGX, "statuses": ["OutOfDate"]}).statuses == ("OutOfDate",)
    assert Policy.of(SNP).minimum_tcb == (3, 0, 8, 115)
    assert Policy.of(SNP).statuses == ()
    assert [Policy.of({**SGX, "max_age": age}).max_age for age in (1, 7 * 86400)] == [1, 7 * 86400]


@pytest.mark.parametrize(
    ("table", "changes", "needs"),
    [
        (SGX, {"kind": "sgx2"}, "kind needs one of sgx, tdx"),
        (SGX, {"kind": None}, "kind needs"),
        (SGX, {"kind": ["sgx"]}, "kind needs"),
        (SGX, {"measurements": []}, "whatever code it runs"),
        (SGX, {"measurements": None}, "whatever code it runs"),
        (SGX, {"measurements": "ab" * 32}, "a list with at least one text"),
        (SGX, {"measurements": [7]}, "a list with at least one text"),
        (SGX, {"measurements": ["AB" * 32]}, "lower-case hex"),
        (SGX, {"measurements": ["ab" * 31]}, "64 lower-case hex digits"),
        (SGX, {"measurements": ["ab" * 32, "ab" * 32]}, "no entry twice"),
        (SGX, {"measurements": ["00" * 32]}, "not zero"),
        (NITRO, {"measurements": ["ab" * 48]}, "PCR0:PCR1:PCR2"),
        (NITRO, {"measurements": [":".join(["00" * 48] * 3)]}, "debug mode"),
        (TDX, {"measurements": [":".join(["ab" * 48] * 4)]}, "mr_td:rtmr0:rtmr1:rtmr2:rtmr3"),
        (SGX, {"max_age": None}, "whole seconds"),
        (SGX, {"max_age": 0}, "whole seconds"),
        (SGX, {"max_age": True}, "whole seconds"),
        (SGX, {"max_age": 10**9}, "whole seconds"),
        (SGX, {"debug": True}, "unknown key"),
        (SGX, {"roots": ["cd" * 32]}, "unknown key"),
        (SGX, {"statuses": ["Revoked"]}, "never accepted"),
        (SGX, {"statuses": []}, "at least one text"),
        (SGX, {"advisories": "INTEL-SA-00615"}, "at least one text"),
        (SNP, {"roots": None}, "Pin whom you trust"),
        (SNP, {"roots": ["CD" * 32]}, "SHA-256 fingerprints"),
        (SNP, {"minimum_tcb": None}, "bootloader, tee, snp, microcode"),
        (SNP, {"minimum_tcb": {"bootloader": 3, "tee": 0, "snp": 8}}, "each 0 to 255"),
        (SNP, {"minimum_tcb": {"bootloader": 3, "tee": 0, "snp": 8, "microcode": 256}}, "each 0 to 255"),
        (SNP, {"minimum_tcb": {"bootloader": 3, "tee": 0, "snp": 8, "microcode": "1"}}, "each 0 to 255"),
        (SNP, {"minimum_tcb": {"bootloader": 3, "tee": 0, "snp": 8, "microcode": True}}, "each 0 to 255"),
        (SNP, {"minimum_tcb": {"bootloader": 3, "tee": 0, "snp": 8, "microcode": 1, "x": 1}}, "each 0 to 255"),
        (TPM, {"measurements": ["sha256:14"]}, "sha256:<registers>"),
        (TPM, {"measurements": ["sha1:14=" + "ab" * 20]}, "sha256:<registers>"),
        (TPM, {"measurements": ["sha256:14,4=" + "ab" * 32]}, "ascending"),
        (TPM, {"measurements": ["sha256:4,4=" + "ab" * 32]}, "ascending"),
        (TPM, {"measurements": ["sha256:24=" + "ab" * 32]}, "0 to 23"),
        (TPM, {"measurements": ["sha256:16=" + "ab" * 32]}, "operator cannot reset"),
        (TPM, {"measurements": ["sha256:14,23=" + "ab" * 32]}, "operator cannot reset"),
        (TPM, {"statuses": ["UpToDate"]}, "unknown key"),
    ],
)
def test_a_doubtful_policy_is_refused(table: dict[str, Any], changes: dict[str, Any], needs: str) -> None:
    changed = {key: value for key, value in {**table, **changes}.items() if value is not None}
    with pytest.raises(PlanError, match="attestation policy") as caught:
        Policy.of(changed)
    assert needs in str(caught.value)


def test_an_aggregator_reads_its_registers_off_the_policy() -> None:
    assert registers_of(Policy.of(TPM).measurements[0]) == (0, 4, 14)


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        Policy.of({"kind": "sev-snp", "extra": 1}, who="policy.toml")
    assert len(caught.value.problems) == 5
    assert all(str(problem).startswith("policy.toml ") for problem in caught.value.problems)
