"""From the plan's privacy section to the public numbers that both ends build the pipeline from."""

from consilia.core.spec import Unit
from consilia.pipeline.chain import Protection
from consilia.plan.run_plan import SiteTerms
from consilia.plan.schema import Plan


def protection_of(plan: Plan, sites: tuple[SiteTerms, ...], z: float, *, control_dim: int) -> Protection:
    """Return the public numbers the pipeline is built from."""
    return Protection(
        unit=Unit(plan.privacy.unit),
        placement=plan.privacy.noise,
        multiplier=z,
        clip_norm=plan.privacy.clip_norm,
        control_clip_norm=plan.privacy.control_clip_norm,
        control_dim=control_dim,
        weights={terms.name: terms.weight for terms in sites},
        normalisers={terms.name: terms.expected_batch for terms in sites},
    )
