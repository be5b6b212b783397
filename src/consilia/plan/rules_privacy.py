"""Rules on the claim: what each unit and placement of noise can promise, and against whom.

Source: the project's decisions on privacy claims; docs/guarantees.md.
"""

from collections.abc import Iterator

from consilia.core.errors import Problem
from consilia.plan.schema import Plan


def privacy_rules(plan: Plan) -> list[Problem]:
    """Return the rules on [privacy] and [ledger] that the plan breaks."""
    if plan.privacy.unit == "none":
        return []
    # A stack's noise follows from epsilon alone; it has rules of its own.
    numbers = [] if plan.training.algorithm == "stacking" else _numbers(plan)
    return [
        *numbers, *_placement(plan), *_clipping(plan), *_local_state(plan), *_control(plan), *_budget(plan),
    ]  # fmt: skip


def against(plan: Plan) -> str:
    """Return the adversary the claim holds against, the placement's own when the plan names none."""
    if plan.privacy.against is not None:
        return plan.privacy.against
    if plan.privacy.noise == "server":
        return "world"
    distributed = plan.privacy.noise == "distributed"  # elsewhere colluding sites know nothing of a site's noise
    return "server+colluding-sites" if distributed and plan.secure_sum.colluders else "server"


def _numbers(plan: Plan) -> Iterator[Problem]:
    privacy, setting = plan.privacy, f'privacy.unit = "{plan.privacy.unit}"'
    if privacy.epsilon is None and privacy.noise_multiplier is None:
        yield Problem(
            "plan section privacy",
            f"privacy.epsilon or privacy.noise_multiplier with {setting}",
            "neither",
            "Give the target epsilon and let the noise follow, the noise and let epsilon follow, or both and let the rounds",
        )
    if privacy.delta is None:
        yield Problem(
            "plan key privacy.delta",
            f"a value with {setting}",
            "nothing",
            "Set it well below 1 over the smallest site's rows; 1e-5 is usual",
        )
    if privacy.clip_norm is None:
        yield Problem(
            "plan key privacy.clip_norm",
            f"a value with {setting}",
            "nothing",
            "Without a bound on each contribution no noise is enough; begin with 1.0",
        )


def _placement(plan: Plan) -> Iterator[Problem]:
    privacy, training = plan.privacy, plan.training
    if privacy.noise == "server" and privacy.within_site and training.algorithm != "fedsgd":
        yield Problem(
            'plan key privacy.noise = "server"',
            f'one clipped sum a round (training.algorithm = "fedsgd") with privacy.unit = "{privacy.unit}"',
            'several local steps (training.algorithm = "fedavg")',
            'Set training.algorithm = "fedsgd", privacy.noise = "site", or privacy.unit = "site"',
        )
    if privacy.noise == "server" and privacy.against == "server":
        yield Problem(
            'plan key privacy.against = "server"',
            "noise that is drawn before the server sees a sum",
            'privacy.noise = "server"',
            'Set privacy.noise = "site", or privacy.against = "world"',
        )


def _clipping(plan: Plan) -> Iterator[Problem]:
    privacy, training = plan.privacy, plan.training
    if privacy.clipping != "flat" and not privacy.within_site:
        yield Problem(
            f'plan key privacy.clipping = "{privacy.clipping}"',
            'privacy.unit = "record" or "patient"',
            f'"{privacy.unit}"',
            'Use "flat": a site\'s update is clipped as a whole',
        )
    if privacy.clipping == "adaptive" and privacy.noise != "site":
        # The server's noise is scaled for one C; a C that each site moves on its own is not known to it.
        yield Problem(
            'plan key privacy.clipping = "adaptive"',
            'privacy.noise = "site"',
            f'"{privacy.noise}"',
            'Use privacy.noise = "site", or clipping = "automatic", which needs no threshold either',
        )
    if privacy.unit == "patient" and plan.data.source != "csv":
        yield Problem(
            'plan key privacy.unit = "patient"',
            "rows that name their patient (csv with data.patient_column)",
            f'data.source = "{plan.data.source}"',
            'Use privacy.unit = "record" where each row is a patient of its own',
        )
    elif privacy.unit == "patient" and plan.data.patient_column is None:
        yield Problem(
            "plan key data.patient_column",
            'a column with privacy.unit = "patient"',
            "nothing",
            "Name the column that tells whose row it is",
        )
    if training.optimizer == "dp-adam" and not (privacy.within_site and privacy.noise == "site"):
        yield Problem(
            'plan key training.optimizer = "dp-adam"',
            "noise inside training (privacy.unit = record or patient, noise at the site)",
            f"unit {privacy.unit}, noise at the {privacy.noise}",
            'Use "adam"',
        )
    known = training.algorithm == "fedsgd" or not privacy.within_site
    if training.server_optimizer == "dp-adam" and (not known or privacy.clipping == "adaptive"):
        yield Problem(
            'plan key training.server_optimizer = "dp-adam"',
            "an average whose noise the coordinator knows (fedsgd, or site unit; no adaptive clipping)",
            f"{training.algorithm} with {privacy.clipping} clipping",
            'Use "adam"',
        )


def _local_state(plan: Plan) -> Iterator[Problem]:
    layers, unit = plan.model.local_layers, plan.privacy.unit
    if layers == "norm":
        yield Problem(
            'plan key model.local_layers = "norm"',
            'privacy.unit = "none"',
            f'privacy.unit = "{unit}"',
            'FedBN is for runs without a claim; use a model with GroupNorm and model.local_layers = "none"',
        )
    if layers == "head" and plan.privacy.within_site:
        # The kept head depends on every record without noise, so one record would move all later gradients.
        yield Problem(
            'plan key model.local_layers = "head"',
            'privacy.unit = "none" or "site"',
            f'privacy.unit = "{unit}"',
            "Share all layers, or protect the site as a whole",
        )
    if layers == "head" and unit == "site" and plan.evaluation.metrics == "public":
        # The rows may be public; the head that scores them has met neither clip nor noise.
        yield Problem(
            'plan key evaluation.metrics = "public"',
            'model.local_layers = "none" with privacy.unit = "site"',
            'model.local_layers = "head"',
            'Set evaluation.metrics = "hidden": scores of a head kept at the site tell about its training rows',
        )


def _control(plan: Plan) -> Iterator[Problem]:
    if plan.privacy.unit == "site" and plan.training.scaffold and plan.privacy.control_clip_norm is None:
        yield Problem(
            "plan key privacy.control_clip_norm",
            'a value with privacy.unit = "site" and training.scaffold = true',
            "nothing",
            "The control variate leaves the site too: bound its change, or set training.scaffold = false",
        )


def _budget(plan: Plan) -> Iterator[Problem]:
    target, limit = plan.privacy.epsilon, plan.ledger.max_epsilon
    if target is not None and limit is not None and target > limit:
        yield Problem(
            "plan key privacy.epsilon",
            f"at most ledger.max_epsilon = {limit:g}",
            f"{target:g}",
            "Lower the target; every site's ledger would refuse this run",
        )
    if limit is not None and plan.run.reproducible:
        yield Problem(
            "plan key run.reproducible",
            "false with ledger.max_epsilon",
            "true",
            "Anyone can recompute its noise: no limit covers such a run",
        )
