"""Which model is the result: the last, the best by public or charged metrics, or an average of many."""

import numpy as np

from consilia.aggregate.average import Ema
from consilia.core.update import Vector
from consilia.plan.training import TrainingSection
from consilia.rounds.records import RoundRecord
from consilia.rounds.state import AFRESH, TrainingState


def keep(state: TrainingState, record: RoundRecord, patience: int | None) -> None:
    """Note the best model so far, and stop after `patience` evaluations without a better one.

    Only a strictly higher accuracy counts as better, so ties keep the earlier model.
    """
    if record.accuracy is None:
        return
    if state.best_score is None or record.accuracy > state.best_score:
        state.best, state.best_score, state.best_round, state.stale = (
            state.model,
            record.accuracy,
            record.round,
            0,
        )
        return
    state.stale += 1
    if patience is not None and state.stale >= patience:
        state.stopped = f"no better model in {patience} evaluations; best was round {state.best_round}"


def void_if_worse(state: TrainingState, record: RoundRecord, stop_loss: float | None) -> bool:
    """Take a round back whose model is worse than the last good one by more than the plan's stop-loss; say whether it was.

    The last good model stays, and with it what sites kept of rounds before; the server's optimizer starts afresh. What the
    round was charged stays charged. A round whose accuracy is not known is neither good nor void.
    """
    if stop_loss is None or record.accuracy is None:
        return False
    if state.good is not None and state.good_score is not None and record.accuracy < state.good_score - stop_loss:
        worse = f"accuracy {record.accuracy:.3f}, more than {stop_loss:g} below {state.good_score:.3f}"
        record.status, record.reason = "skipped", f"{worse}; the last good model stays"
        state.model, state.counted, state.phase = state.good, dict(state.good_counted), AFRESH
        state.skipped += 1
        return True
    state.good, state.good_score, state.good_counted = state.model, record.accuracy, dict(state.counted)
    return False


def average(state: TrainingState, training: TrainingSection, number: int, rounds: int) -> None:
    """Add the model of a round that counted to the average that the plan keeps, if it keeps any."""
    if training.keep == "ema":
        state.tail = Ema(training.ema_decay).update(state.tail, state.model, state.tail_count)
        state.tail_count += 1
    elif training.keep == "tail-average" and number > rounds // 2:
        if state.tail is None:
            state.tail = state.model.astype(np.float64)
        else:
            state.tail += state.model
        state.tail_count += 1


def result_model(rule: str, state: TrainingState) -> Vector:
    """Return the model the plan asks for, shape (d,); the last one where its kind never came to be."""
    if rule == "best" and state.best is not None:
        return state.best
    if rule == "tail-average" and state.tail is not None and state.tail_count:
        return (state.tail / state.tail_count).astype(np.float32)
    if rule == "ema" and state.tail is not None:
        return state.tail.astype(np.float32)
    return state.model
