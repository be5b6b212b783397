"""Rules between keys of a plan: all that can be said before a site's data or a model is known."""

from consilia.core.errors import Problem
from consilia.plan.phases import phase_rules, phases
from consilia.plan.rules_asynchronous import asynchronous_rules
from consilia.plan.rules_data import data_rules
from consilia.plan.rules_messages import message_rules
from consilia.plan.rules_own_data import own_data_rules
from consilia.plan.rules_privacy import privacy_rules
from consilia.plan.rules_secure import secure_rules
from consilia.plan.rules_stacking import stacking_rules
from consilia.plan.rules_training import training_rules
from consilia.plan.rules_unused import unused_keys
from consilia.plan.schema import Plan


def broken(plan: Plan) -> list[Problem]:
    """Return every rule the plan breaks in any of its phases, keys without effect included."""
    found = [*phase_rules(plan), *stacking_rules(plan), *unused_keys(plan), *secure_rules(plan), *message_rules(plan)]
    found += asynchronous_rules(plan)
    for phase in phases(plan):
        alone = phase.plan
        found += [*data_rules(alone), *own_data_rules(alone), *training_rules(alone), *privacy_rules(alone)]
    return list(dict.fromkeys(found))
