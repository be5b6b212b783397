"""P12. A round takes at most three models and 64 kB a site at the coordinator, however many sites there are (plain averaging)."""

import pytest
from tests.promises.values import LINUX, require_small


@pytest.mark.skipif(not LINUX, reason="reads Linux's /proc")
@pytest.mark.parametrize("sites", [5, 20])
def test_three_models_and_64_kb_a_site(sites: int) -> None:
    require_small(sites)
