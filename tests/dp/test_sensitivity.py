import math

import pytest

from consilia.core.errors import PlanError
from consilia.dp.accountant import bound
from consilia.dp.event import Event
from consilia.dp.sensitivity import effective_multiplier


def test_a_smaller_site_enjoys_more_noise() -> None:
    assert effective_multiplier(1.0, own=0.5, largest=2.0) == 4.0
    assert effective_multiplier(1.0, own=2.0, largest=2.0) == 1.0
    assert effective_multiplier(1.0, own=0.0, largest=2.0) == math.inf
    assert bound([(Event(math.inf), 3)], 1e-5).epsilon == 0
    with pytest.raises(PlanError, match="at most 2"):
        effective_multiplier(1.0, own=2.1, largest=2.0)
