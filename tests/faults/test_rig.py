"""The rig's own check can fail: a release that no ledger charged is seen."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.faults.rig import Rig
from tests.promises.fleet import Case

from consilia.core.update import Release
from consilia.core.wire import decode, encode


def test_a_release_that_was_not_charged_is_seen(make: Callable[..., Rig]) -> None:
    rig = make(Case("dp", rounds=1, deadline=8.0)).start()
    rig.run()
    name, frame = next((name, frame) for name, frame in rig.answers if isinstance(decode(frame, who="test"), Release))
    release = decode(frame, who="test")
    assert isinstance(release, Release)
    for number in range(2, 6):
        rig.answers.append((name, encode(replace(release, round=number))))
    with pytest.raises(AssertionError):
        rig.sound()
