"""From the plan's privacy section to the public numbers that both ends build the pipeline from."""

from collections.abc import Sequence

from consilia.core.spec import Unit
from consilia.pipeline.protection import Protection
from consilia.plan.phases import Phase
from consilia.plan.run_plan import SiteTerms


def protection_of(phase: Phase, sites: Sequence[SiteTerms], z: float, *, control_dim: int) -> Protection:
    """Return the public numbers that a phase's pipeline is built from; `z` is the run's noise multiplier."""
    privacy = phase.plan.privacy
    return Protection(
        unit=Unit(privacy.unit),
        placement=privacy.noise,
        multiplier=z * phase.noise_scale,
        private_learner=phase.plan.training.algorithm == "stacking",
        clip_norm=privacy.clip_norm,
        control_clip_norm=privacy.control_clip_norm,
        control_dim=control_dim,
        weights={terms.name: terms.weight for terms in sites},
        normalisers={terms.name: terms.phases[phase.index].expected_batch for terms in sites},
    )
