"""A run inside attested code that ended between two rounds goes on: the code shows itself again, and seals go to a new key."""

from pathlib import Path

import pytest
from tests.rounds.bench import RECORD
from tests.rounds.secure_bench import CODE, REGISTER, SITES, secret, write_policy
from tests.transport.tpm.software_tpm import software_tpm

import consilia
from consilia.federation.attesting import DEVICE
from consilia.transport.tpm import TpmAttester, measure


def test_an_attested_run_goes_on_with_a_new_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    seen: list[object] = []

    def end(record: dict[str, object]) -> None:
        seen.append(record["epsilon_spent"])
        if len(seen) == 2:
            raise RuntimeError("ended here")

    with software_tpm() as path:
        measure(path, REGISTER, CODE)
        with TpmAttester(path, (REGISTER,)) as attester:
            write_policy(tmp_path, attester)
        monkeypatch.setenv(DEVICE, str(path))
        plan = secret("attested", rounds=4, privacy=RECORD, reproducible=False, metrics="hidden")
        with pytest.raises(RuntimeError, match="ended here"):
            consilia.run(plan, out=out, on_round=end)
        result = consilia.resume(out, on_round=lambda record: seen.append(record["epsilon_spent"]))
    assert result.summary["status"] == "done"
    assert [record["status"] for record in result.records] == ["counted"] * 4
    assert [record["answered"] for record in result.records] == [list(SITES)] * 4
    assert seen == sorted(seen, key=float)  # type: ignore[arg-type]
    assert seen[-1] == pytest.approx(result.summary["epsilon"])
