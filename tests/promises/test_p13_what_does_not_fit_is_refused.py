"""P13. Another version, another shape or another plan is refused before a round, with both values named."""

from pathlib import Path

import numpy as np
import pytest
from tests.promises.fleet import DIM, RUN, Case, Fleet, entropy_for, with_stores

from consilia.core.canonical import Json
from consilia.core.errors import ProtocolError
from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import VERSION, decode, encode, pack_vector, unpack_vector


def test_a_frame_of_another_version_names_both() -> None:
    frame = bytearray(encode(ProtocolMessage("train", "Arnhem", 1)))
    frame[4] = VERSION + 1
    with pytest.raises(ProtocolError, match=f"wire version {VERSION}; got wire version {VERSION + 1}"):
        decode(bytes(frame), who="site Arnhem")


def test_a_model_of_another_length_names_both() -> None:
    with pytest.raises(ProtocolError, match=f"{DIM} float32 values .32 bytes.; got 36 bytes"):
        unpack_vector(pack_vector(np.zeros(DIM + 1, np.float32)), DIM, who="site Arnhem")


@pytest.mark.parametrize("change", [{"plan": "0" * 64}, {"run": "another"}])
def test_a_task_of_another_plan_or_run_computes_nothing(change: dict[str, str], place: Path, shelf: Path) -> None:
    case = Case("dp")
    fleet = Fleet(case, with_stores(case, place, shelf), entropy_for(case, 0))
    site, store = fleet.open_site("Arnhem")
    body: dict[str, Json] = {"plan": fleet.plan.digest, "run": RUN, "counted": 0, **change}
    answer = decode(site.handle(encode(ProtocolMessage("train", "Arnhem", 1, body, pack_vector(np.zeros(DIM, np.float32))))),
                    who="test")  # fmt: skip
    assert not isinstance(answer, Release)
    assert answer.kind == "refused"
    assert store.charged(RUN) == []
    store.close()
