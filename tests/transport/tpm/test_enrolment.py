"""A steward makes sure that the attestation key lives in the TPM whose endorsement key the maker certified."""

import pytest
from tests.crypto.attestation.makers import Tpm
from tests.transport.tpm.software_tpm import software_tpm

from consilia.core.errors import ProtocolError, TransportError
from consilia.core.randomness import SecretRng
from consilia.crypto.attestation.credential import challenge, endorsement_key
from consilia.transport.tpm import TpmAttester

RNG = SecretRng(b"e" * 32)
SECRET = b"s" * 32


def test_the_tpm_with_both_keys_answers_and_no_other() -> None:
    with software_tpm() as path, TpmAttester(path, (14,)) as tpm, software_tpm() as other_path:
        endorsement, signer = tpm.enrolment()
        assert endorsement_key(endorsement)[0] == 4
        for secret in (SECRET, b"s", b"s" * 15):
            assert tpm.answer(challenge(endorsement, signer, secret, rng=RNG)) == secret
        with TpmAttester(other_path, (14,)) as other:
            theirs, their_signer = other.enrolment()
            assert theirs != endorsement
            for mixed in ((theirs, signer), (endorsement, their_signer)):
                for attester in (tpm, other):
                    with pytest.raises(TransportError, match="response code"):
                        attester.answer(challenge(*mixed, SECRET, rng=RNG))
        software = Tpm().parts()[4]  # an attestation key that is in no TPM
        with pytest.raises(TransportError, match="response code"):
            tpm.answer(challenge(endorsement, software, SECRET, rng=RNG))
        for _ in range(5):  # refusals leave nothing behind in the TPM
            assert tpm.answer(challenge(endorsement, signer, SECRET, rng=RNG)) == SECRET


def test_a_changed_challenge_is_refused() -> None:
    with software_tpm() as path, TpmAttester(path, (14,)) as tpm:
        question = challenge(*tpm.enrolment(), SECRET, rng=RNG)
        for at in (0, 5, 40, 60, len(question) - 1):
            with pytest.raises(TransportError):
                tpm.answer(question[:at] + bytes([question[at] ^ 1]) + question[at + 1 :])


def test_an_endorsement_key_of_another_form_is_refused() -> None:
    signer = Tpm().parts()[4]
    head = (
        "0023000b000300b20020837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa000600800043001000030010"
    )
    zeros = bytes.fromhex(head) + (b"\0\x20" + bytes(32)) * 2
    for bad in (b"", signer, zeros[:-1], zeros + b"\0", b"\0" + zeros[1:], zeros):
        with pytest.raises(ProtocolError, match="Attestation, endorsement key"):
            challenge(bad, signer, SECRET, rng=RNG)
    for secret in (b"", b"s" * 33):
        with pytest.raises(ProtocolError, match="Attestation, challenge"):
            challenge(zeros, signer, secret, rng=RNG)
