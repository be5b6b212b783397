"""A site, an aggregator and a TPM between them: a software TPM, started here, does what a real one does."""

import dataclasses
import hashlib
import socket
import threading
import tty
from collections.abc import Iterator
from dataclasses import dataclass
from os import openpty, read, ttyname, urandom, write
from pathlib import Path

import pytest
from tests.transport.tpm.software_tpm import software_tpm

from consilia.core.errors import ProtocolError, TransportError
from consilia.core.randomness import SecretRng
from consilia.crypto.attestation import Claims, Evidence, Policy, verify
from consilia.crypto.attestation.sealing import seal_to
from consilia.transport.tpm import TpmAttester, commands, measure
from consilia.transport.tpm.link import PASSWORD, TpmLink

CODE = hashlib.sha256(b"the aggregator's code").digest()
REGISTER = 14
CONTEXT, NONCE, INFO, NOW = b"c" * 32, b"n" * 32, b"run, site, round", 1_700_000_000
RNG = SecretRng(b"r" * 32)
_PCR_RESET = 0x13D


def expected(register: int, code: bytes) -> str:
    """What a steward computes from the code, without a TPM."""
    value = hashlib.sha256(bytes(32) + code).digest()
    return f"sha256:{register}={hashlib.sha256(value).hexdigest()}"


@dataclass
class Machine:
    path: Path
    attester: TpmAttester
    policy: Policy

    def evidence(self) -> Evidence:
        return self.attester.evidence(context=CONTEXT, nonce=NONCE)

    def claims(self) -> Claims:
        return verify(
            Evidence.from_bytes(self.evidence().to_bytes()), self.policy, context=CONTEXT, nonce=NONCE, now=NOW
        )


@pytest.fixture
def machine() -> Iterator[Machine]:
    with software_tpm() as path:
        measure(path, REGISTER, CODE)
        with TpmAttester(path, (REGISTER,)) as attester:
            yield Machine(path, attester, policy(attester, expected(REGISTER, CODE)))


def policy(attester: TpmAttester, measurement: str) -> Policy:
    return Policy.of({"kind": "tpm", "measurements": [measurement], "max_age": 3600, "roots": [attester.fingerprint]})


def test_a_site_seals_an_update_and_the_measured_code_alone_opens_it(machine: Machine) -> None:
    claims = machine.claims()
    assert (claims.key, claims.debug, claims.expires) == (machine.attester.key, False, NOW + 3600)
    update = urandom(4 << 20)
    sealed = seal_to(claims, update, info=INFO, rng=RNG, now=NOW)
    assert len(sealed) == len(update) + 65 + 16
    assert machine.attester.open_sealed(sealed, info=INFO) == update
    assert machine.attester.open_sealed(sealed, info=INFO) == update  # sessions do not run out
    commands.extend(machine.attester._link, REGISTER, CODE)
    for _ in range(5):
        with pytest.raises(TransportError, match="policy check that failed"):
            machine.attester.open_sealed(sealed, info=INFO)
    with pytest.raises(ProtocolError, match="key policy"):
        machine.claims()


def test_a_key_made_for_changed_code_is_refused() -> None:
    with software_tpm() as path:
        measure(path, REGISTER, CODE)
        measure(path, REGISTER, CODE)
        with TpmAttester(path, (REGISTER,)) as attester:
            machine = Machine(path, attester, policy(attester, expected(REGISTER, CODE)))
            with pytest.raises(ProtocolError, match="measurement"):
                machine.claims()


def test_code_that_the_policy_does_not_name_is_refused(machine: Machine) -> None:
    other = dataclasses.replace(machine.policy, measurements=(expected(REGISTER, b"x" * 32),))
    with pytest.raises(ProtocolError, match="measurement"):
        verify(machine.evidence(), other, context=CONTEXT, nonce=NONCE, now=NOW)


def test_an_unpinned_attestation_key_is_refused(machine: Machine) -> None:
    other = dataclasses.replace(machine.policy, roots=("ab" * 32,))
    with pytest.raises(ProtocolError, match="root"):
        verify(machine.evidence(), other, context=CONTEXT, nonce=NONCE, now=NOW)


def test_another_nonce_context_or_key_is_refused(machine: Machine) -> None:
    evidence = machine.evidence()
    with pytest.raises(ProtocolError, match="binding"):
        verify(evidence, machine.policy, context=CONTEXT, nonce=b"m" * 32, now=NOW)
    with pytest.raises(ProtocolError, match="binding"):
        verify(evidence, machine.policy, context=b"d" * 32, nonce=NONCE, now=NOW)
    stolen = dataclasses.replace(evidence, key=bytes(range(32)))
    with pytest.raises(ProtocolError, match="key beside the evidence"):
        verify(stolen, machine.policy, context=CONTEXT, nonce=NONCE, now=NOW)


def test_every_byte_of_a_tpms_evidence_counts(machine: Machine) -> None:
    evidence = machine.evidence()
    for at in range(len(evidence.body)):
        body = evidence.body[:at] + bytes([evidence.body[at] ^ 1]) + evidence.body[at + 1 :]
        with pytest.raises(ProtocolError, match="Attestation"):
            verify(dataclasses.replace(evidence, body=body), machine.policy, context=CONTEXT, nonce=NONCE, now=NOW)


def test_the_attestation_key_stays_and_the_other_key_is_fresh() -> None:
    with software_tpm() as path:
        measure(path, REGISTER, CODE)
        with TpmAttester(path, (REGISTER,)) as first:
            claims = Machine(path, first, policy(first, expected(REGISTER, CODE))).claims()
        sealed = seal_to(claims, b"update", info=INFO, rng=RNG, now=NOW)
        with TpmAttester(path, (REGISTER,)) as second:
            assert second.fingerprint == first.fingerprint
            assert second.key != first.key
            with pytest.raises(ProtocolError, match="A sealed update"):
                second.open_sealed(sealed, info=INFO)


def test_what_was_changed_or_meant_for_another_round_does_not_open(machine: Machine) -> None:
    sealed = seal_to(machine.claims(), b"update", info=INFO, rng=RNG, now=NOW)
    for changed, info in ((sealed[:-1] + b"\0", INFO), (sealed, b"another round"), (sealed[:70], INFO), (b"", INFO)):
        with pytest.raises(ProtocolError, match="A sealed update"):
            machine.attester.open_sealed(changed, info=info)
    assert machine.attester.open_sealed(sealed, info=INFO) == b"update"


def test_a_register_that_can_be_reset_protects_nothing() -> None:
    """Why a policy refuses 16 and 23: the operator sets them back, extends the right hash, and other code opens updates."""
    with software_tpm() as path:
        measure(path, 23, CODE)
        with TpmAttester(path, (23,)) as attester:
            claims = Claims("tpm", "", attester.key, "", debug=False, issued=NOW, expires=NOW)
            sealed = seal_to(claims, b"update", info=INFO, rng=RNG, now=NOW)
            commands.extend(attester._link, 23, b"x" * 32)
            with pytest.raises(TransportError):
                attester.open_sealed(sealed, info=INFO)
            attester._link.call(_PCR_RESET, handles=(23,), authorize=(PASSWORD,))
            commands.extend(attester._link, 23, CODE)
            assert attester.open_sealed(sealed, info=INFO) == b"update"
            with pytest.raises(TransportError, match="0x907"):  # TPM_RC_LOCALITY
                attester._link.call(_PCR_RESET, handles=(REGISTER,), authorize=(PASSWORD,))


def test_several_registers_are_hashed_in_order() -> None:
    with software_tpm() as path:
        measure(path, 4, CODE)
        measure(path, REGISTER, CODE)
        with TpmAttester(path, (0, 4, REGISTER)) as attester:
            value = hashlib.sha256(bytes(32) + CODE).digest()
            measurement = f"sha256:0,4,{REGISTER}={hashlib.sha256(bytes(32) + value + value).hexdigest()}"
            machine = Machine(path, attester, policy(attester, measurement))
            assert machine.claims().measurement == measurement


def test_a_device_file_works_as_a_socket_does() -> None:
    """A pseudo-terminal in raw mode stands in for /dev/tpmrm0; a thread carries its bytes to the software TPM."""
    with software_tpm() as path, socket.socket(socket.AF_UNIX) as tpm:
        tpm.connect(str(path))
        ours, theirs = openpty()
        tty.setraw(theirs)

        def carry() -> None:
            while command := read(ours, 4096):
                if command == b"end":
                    return
                while len(command) < int.from_bytes(command[2:6], "big"):
                    command += read(ours, 4096)
                tpm.sendall(command)
                write(ours, tpm.recv(4096))

        carrier = threading.Thread(target=carry, daemon=True)
        carrier.start()
        with TpmAttester(Path(ttyname(theirs)), (REGISTER,)) as attester:
            assert attester.evidence(context=CONTEXT, nonce=NONCE).key == attester.key
        write(theirs, b"end")
        carrier.join(10)


def test_a_missing_or_mute_tpm_is_said(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match=r"a TPM at .*nothing.*No such file"):
        TpmLink(tmp_path / "nothing")
    with pytest.raises(TransportError, match="another kind of file"):
        TpmLink(tmp_path)
    (tmp_path / "notes").write_text("keep me")
    with pytest.raises(TransportError, match="another kind of file"):
        TpmLink(tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "keep me"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen(1)
        link = TpmLink(tmp_path / "s")
        server.accept()[0].close()
        with link, pytest.raises(TransportError, match=r"whole response|answers"):
            commands.extend(link, REGISTER, CODE)
