"""Rules on training, aggregation and evaluation."""

from collections.abc import Iterator

from consilia.core.errors import Problem
from consilia.plan.schema import Plan


def training_rules(plan: Plan) -> list[Problem]:
    """Return the rules on [training], [aggregation] and [evaluation] that the plan breaks."""
    return [
        *_batches(plan), *_local(plan), *_noiseless(plan), *_kept(plan), *_selection(plan), *_evaluation(plan),
        *_stop_loss(plan),
    ]  # fmt: skip


def _batches(plan: Plan) -> Iterator[Problem]:
    training = plan.training
    if training.batch == "fixed" and training.batch_size is None:
        yield Problem(
            "plan key training.batch_size",
            'a value with training.batch = "fixed"',
            "nothing",
            'Set training.batch = "full" or "poisson"'
            if plan.privacy.within_site
            else 'Set training.batch_size = 32, or training.batch = "full"',
        )
    if training.batch == "poisson" and training.sampling_rate is None:
        yield Problem(
            "plan key training.sampling_rate",
            'a value with training.batch = "poisson"',
            "nothing",
            "Set the public rate q, for example batch / rows of the smallest site",
        )


def _local(plan: Plan) -> Iterator[Problem]:
    training = plan.training
    if training.local_epochs is not None and training.local_steps is not None:
        yield Problem(
            "plan section training",
            "only one of training.local_epochs and training.local_steps",
            f"{training.local_epochs} and {training.local_steps}",
            "Remove one of them",
        )
    if training.optimizer != "sgd" and training.momentum > 0:
        yield Problem(
            "plan key training.momentum",
            'training.optimizer = "sgd"',
            f"{training.optimizer}, which has its own",
            "Remove training.momentum",
        )
    if training.scaffold and (training.optimizer != "sgd" or training.momentum > 0):
        got = training.optimizer if training.optimizer != "sgd" else f"momentum {training.momentum:g}"
        yield Problem(
            "plan key training.scaffold",
            'plain steps: training.optimizer = "sgd" and training.momentum = 0',
            got,
            "Its control variate reads the mean gradient off the distance that plain steps covered",
        )


def _noiseless(plan: Plan) -> Iterator[Problem]:
    training = plan.training
    if plan.privacy.unit != "none":
        return
    for key in ("optimizer", "server_optimizer"):
        if getattr(training, key) == "dp-adam":
            yield Problem(
                f'plan key training.{key} = "dp-adam"', "a privacy.unit other than none", "none",
                'Without noise there is nothing to take off: use "adam"',
            )  # fmt: skip


def _kept(plan: Plan) -> Iterator[Problem]:
    training = plan.training
    if plan.evaluation.metrics != "hidden":
        return
    asks = {
        'training.keep = "best"': training.keep == "best",
        "training.patience": training.patience is not None,
        "evaluation.stop_loss": plan.evaluation.stop_loss is not None,
    }
    for key, asked in asks.items():
        if asked:
            yield Problem(
                f"plan key {key}",
                'evaluation.metrics = "public" or "charged"',
                "hidden metrics",
                "Declare the held-out rows public, charge for their metrics, or keep the last model",
            )


def _selection(plan: Plan) -> Iterator[Problem]:
    rule = plan.aggregation
    if rule.selection in ("count", "tilted") and rule.count is None:
        yield Problem(
            "plan key aggregation.count",
            f'a value with aggregation.selection = "{rule.selection}"',
            "nothing",
            "Say how many sites a round asks",
        )
    if rule.selection in ("fraction", "poisson") and rule.fraction is None:
        yield Problem(
            "plan key aggregation.fraction",
            f'a value with aggregation.selection = "{rule.selection}"',
            "nothing",
            "Set the share of sites a round asks, as in 0.5",
        )
    if rule.weights == "capped" and rule.cap is None:
        yield Problem(
            "plan key aggregation.cap",
            'a value with aggregation.weights = "capped"',
            "nothing",
            "Set the largest count that adds weight",
        )
    if rule.quorum > 1 and not rule.quorum.is_integer():
        yield Problem(
            "plan key aggregation.quorum",
            "a share up to 1 or a whole number of sites",
            f"{rule.quorum:g}",
            "As in 0.7 or 3",
        )


def _evaluation(plan: Plan) -> Iterator[Problem]:
    evaluation = plan.evaluation
    if evaluation.metrics != "charged":
        return
    if evaluation.noise_multiplier is None:
        yield Problem(
            "plan key evaluation.noise_multiplier",
            'a value with evaluation.metrics = "charged"',
            "nothing",
            "Set the noise on the count of correct rows, as in 5; larger costs less",
        )
    if plan.privacy.unit != "record":
        # One record moves a count of correct rows by one; a patient or a site moves it by all its rows.
        yield Problem(
            'plan key evaluation.metrics = "charged"',
            'privacy.unit = "record"',
            f'privacy.unit = "{plan.privacy.unit}"',
            'Use evaluation.metrics = "public" or "hidden"',
        )


def _stop_loss(plan: Plan) -> Iterator[Problem]:
    training = plan.training
    if plan.evaluation.stop_loss is None:
        return
    needs = {
        "evaluation.every = 1": (plan.evaluation.every == 1, f"{plan.evaluation.every}", "Each round must be judged"),
        "training.scaffold = false": (not training.scaffold, "true", "Its control variates cannot be taken back"),
        'training.algorithm = "fedavg" or "fedsgd"': (
            training.algorithm != "stacking", '"stacking"', "It has one round: there is no model before it",
        ),
    }  # fmt: skip
    for needed, (holds, got, why) in needs.items():
        if not holds:
            yield Problem("plan key evaluation.stop_loss", needed, got, f"{why}; remove evaluation.stop_loss")
