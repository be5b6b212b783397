"""The plan's section on training."""

from typing import Annotated, Literal

from pydantic import Field

from consilia.plan.values import MOST_ROUNDS, Count, Penalty, Probability, Rounds, Section, Strength


class TrainingSection(Section):
    """Rounds, local work and the server's optimizer."""

    algorithm: Literal["fedavg", "fedsgd", "stacking"] = Field(
        "fedavg",
        description="fedavg: sites train and send differences; fedsgd: sites send one gradient; stacking: each site answers "
        "once, with what [stack] says.",
    )
    rounds: Rounds = Field(20, description="Number of rounds.")
    local_epochs: Count | None = Field(
        None,
        description="fedavg: passes over the site's rows a round (Poisson: 1/sampling_rate steps a pass).",
    )
    local_steps: Count | None = Field(None, description="fedavg: steps a round, instead of epochs.")
    batch: Literal["full", "fixed", "poisson"] = Field(
        "fixed",
        description=("poisson: each row joins each batch with sampling_rate, secretly; needed for amplification."),
    )
    batch_size: Count | None = Field(None, description="fixed: rows a batch.")
    sampling_rate: Probability | None = Field(None, description="poisson: q, a public number.")
    batch_cap: Count | None = Field(
        None,
        description=(
            "poisson: largest batch; the excess is dropped and accounted. Chosen from public numbers when absent."
        ),
    )
    augment: Literal["none", "shift", "shift-flip"] = Field(
        "none", description="Images: train on views of each, moved by up to 2 pixels, shift-flip: mirrored as well."
    )
    views: Annotated[int, Field(ge=1, le=64)] = Field(
        1, description="augment: views of each row and step; their mean gradient is clipped, which costs no privacy."
    )
    optimizer: Literal["sgd", "adam", "dp-adam"] = Field(
        "sgd",
        description="fedavg: the local optimizer; dp-adam: adam without the noise's share of its second moment.",
    )
    learning_rate: Strength = Field(0.1, description="fedavg: the local rate.")
    momentum: float = Field(0.0, ge=0, lt=1, description="fedavg: momentum of local sgd (0.9 is usual).")
    weight_decay: Penalty = Field(0.0, description="L2 penalty added to the local gradient.")
    proximal_mu: Penalty = Field(0.0, description="FedProx: weight of mu/2 |y - x|^2; 0.01 to 1.")
    scaffold: bool = Field(False, description="SCAFFOLD: control variates against client drift.")
    schedule: Literal["constant", "cosine"] = Field(
        "constant",
        description="The rate that moves the model (fedavg: learning_rate, fedsgd: server_learning_rate) over the rounds.",
    )
    warmup_rounds: Annotated[int, Field(ge=0, le=MOST_ROUNDS)] = Field(
        0, description="Rounds in which that rate grows linearly to its full size."
    )
    server_optimizer: Literal["sgd", "momentum", "adagrad", "adam", "yogi", "dp-adam"] = Field(
        "sgd",
        description="What the coordinator does with the average; dp-adam: adam without the noise's share of its second "
        "moment.",
    )
    server_learning_rate: Strength = Field(1.0, description="The coordinator's rate.")
    server_momentum: float = Field(0.9, ge=0, lt=1, description="momentum: beta; adam, yogi, dp-adam: beta1.")
    server_beta2: float = Field(0.99, ge=0, lt=1, description="adam, yogi, dp-adam: beta2.")
    server_tau: Strength = Field(
        1e-3, description="adagrad, adam, yogi: adaptivity tau; the second moment starts at tau^2."
    )
    keep: Literal["last", "best", "tail-average", "ema"] = Field(
        "last",
        description="Which model is the result; tail-average: the mean of the second half's models; ema: their "
        "exponential moving average.",
    )
    ema_decay: float = Field(0.99, gt=0, lt=1, description="ema: weight of the past in each round.")
    patience: Count | None = Field(
        None,
        description=("Stop after so many evaluations without a better one; needs metrics that are public or charged."),
    )
