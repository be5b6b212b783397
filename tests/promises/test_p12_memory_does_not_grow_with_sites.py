"""P12. A round takes at most three models and 64 kB a site at the coordinator, however many sites there are (in the clear)."""

import pytest
from tests.promises.values import LINUX, require_small


@pytest.mark.skipif(not LINUX, reason="reads Linux's /proc")
@pytest.mark.parametrize(("sites", "optimizer"), [(5, "sgd"), (20, "sgd"), (20, "momentum"), (20, "adam")])
def test_three_models_and_64_kb_a_site(sites: int, optimizer: str) -> None:
    require_small(sites)
