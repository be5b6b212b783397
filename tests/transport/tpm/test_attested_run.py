"""A whole run whose sites seal their updates to a key in a TPM, and only to the code that their policy names."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.transport.tpm.software_tpm import software_tpm

import consilia
from consilia.core.errors import TransportError
from consilia.federation import attesting
from consilia.transport.tpm import TpmAttester, commands, measure

CODE = hashlib.sha256(b"the aggregator's code").digest()
REGISTER = 14
PLAN = """
[run]
name = "attested"
[data]
source = "heart"
split = "exact"
test_fraction = 0.34
[sites]
partition = "natural"
counts = "public"
[model]
name = "logistic"
[training]
algorithm = "fedsgd"
batch = "full"
rounds = 3
server_learning_rate = 1.0
[secure_sum]
mode = "{mode}"
{policy}
[evaluation]
metrics = "public"
"""


@pytest.fixture
def tpm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Start a TPM with measured code; yield the attestation key's fingerprint."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "home"))
    with software_tpm() as path:
        monkeypatch.setenv("CONSILIA_TPM", str(path))
        measure(path, REGISTER, CODE)
        with TpmAttester(path, (REGISTER,)) as attester:
            fingerprint = attester.fingerprint
        yield fingerprint


def run(mode: str, *, fingerprint: str = "", code: bytes = CODE, out: str = "run") -> consilia.RunResult:
    value = hashlib.sha256(bytes(32) + code).digest()
    measurement = f"sha256:{REGISTER}={hashlib.sha256(value).hexdigest()}"
    policy = f'kind = "tpm"\nmeasurements = ["{measurement}"]\nmax_age = 3600\nroots = ["{fingerprint}"]\n'
    Path("policy.toml").write_text(policy)
    key = 'policy = "policy.toml"' if mode == "attested" else ""
    Path("plan.toml").write_text(PLAN.format(mode=mode, policy=key))
    return consilia.run(consilia.load("plan.toml"), out=out)


def test_a_run_inside_attested_code_learns_what_a_run_in_the_clear_does(tpm: str) -> None:
    attested = run("attested", fingerprint=tpm)
    clear = run("none", out="clear")
    assert attested.summary["accuracy"] == pytest.approx(clear.summary["accuracy"], abs=1e-9)
    assert [record["status"] for record in attested.records] == ["counted"] * 3


def test_no_site_answers_code_that_its_policy_does_not_name(tpm: str) -> None:
    result = run("attested", fingerprint=tpm, code=b"x" * 32)
    for record in result.records:
        assert record["status"] == "skipped"
        assert set(record["dropped"].values()) == {"refused: ProtocolError"}
        assert len(record["dropped"]) == 4


def test_a_run_ends_when_the_measured_code_changes(tpm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Changing(TpmAttester):
        """Code that is replaced once it has opened a round's four updates."""

        opened = 0

        def open_sealed(self, sealed: bytes, *, info: bytes) -> bytes:
            if self.opened == 4:
                commands.extend(self._link, REGISTER, CODE)
            self.opened += 1
            return super().open_sealed(sealed, info=info)

    monkeypatch.setattr(attesting, "TpmAttester", Changing)
    with pytest.raises(TransportError, match="policy check that failed"):
        run("attested", fingerprint=tpm)
