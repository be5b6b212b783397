"""LSTM, GRU and plain recurrent layers, step by step: the fused kernels keep the gates' slopes to themselves."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from consilia.learning.persample.book import Book, Handler
from consilia.learning.persample.tracked import Untraceable

State = tuple[Tensor, ...]
# One step: from the inputs' share of the gates, a function that adds the state's share, and the state, to the next state.
Cell = Callable[[Tensor, Callable[[Tensor], Tensor], State], State]


def _lstm_cell(given: Tensor, recalled: Callable[[Tensor], Tensor], state: State) -> State:
    into, forget, cell, out = (given + recalled(state[0])).chunk(4, -1)
    c = forget.sigmoid() * state[1] + into.sigmoid() * cell.tanh()
    return out.sigmoid() * c.tanh(), c


def _gru_cell(given: Tensor, recalled: Callable[[Tensor], Tensor], state: State) -> State:
    (x_reset, x_keep, x_new), (h_reset, h_keep, h_new) = given.chunk(3, -1), recalled(state[0]).chunk(3, -1)
    keep = (x_keep + h_keep).sigmoid()
    new = (x_new + (x_reset + h_reset).sigmoid() * h_new).tanh()
    return (new + keep * (state[0] - new),)


def lstm(
    book: Book, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], bias: bool, layers: int, dropout: float,
    training: bool, both: bool, batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return outputs and last states, as `torch.lstm` does."""
    out, (h, c) = _run(_lstm_cell, x, tuple(states), weights, bias, layers, dropout, both, batch_first)
    return out, h, c


def gru(
    book: Book, x: Tensor, state: Tensor, weights: Sequence[Tensor], bias: bool, layers: int, dropout: float,
    training: bool, both: bool, batch_first: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return outputs and the last state, as `torch.gru` does."""
    out, (h,) = _run(_gru_cell, x, (state,), weights, bias, layers, dropout, both, batch_first)
    return out, h


def plain(activation: str) -> Handler:
    """Return the handler of a recurrent layer without gates."""
    act = getattr(torch, activation)

    def cell(given: Tensor, recalled: Callable[[Tensor], Tensor], state: State) -> State:
        return (act(given + recalled(state[0])),)

    def handler(
        book: Book, x: Tensor, state: Tensor, weights: Sequence[Tensor], bias: bool, layers: int, dropout: float,
        training: bool, both: bool, batch_first: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        out, (h,) = _run(cell, x, (state,), weights, bias, layers, dropout, both, batch_first)
        return out, h

    return handler


def _run(
    cell: Cell, x: Tensor, states: State, weights: Sequence[Tensor], bias: bool, layers: int, dropout: float, both: bool,
    batch_first: bool,
) -> tuple[Tensor, State]:  # fmt: skip
    """Run every layer and direction; the states have shape (layers * directions, rows, width)."""
    ways, each = 1 + both, 2 + 2 * bias
    if not isinstance(batch_first, bool) or dropout > 0 or len(weights) != layers * ways * each:
        raise Untraceable("a recurrent layer on packed sequences, with dropout or with projections")
    last: list[State] = []
    for layer in range(layers):
        outs = []
        for way in range(ways):
            place = layer * ways + way
            matrices = weights[place * each : (place + 1) * each]
            out, state = _one_way(cell, x, tuple(s[place] for s in states), matrices, way == 1, 1 if batch_first else 0)
            outs.append(out)
            last.append(state)
        x = torch.cat(outs, -1) if both else outs[0]
    return x, tuple(torch.stack([state[i] for state in last]) for i in range(len(states)))


def _one_way(
    cell: Cell, x: Tensor, state: State, matrices: Sequence[Tensor], backwards: bool, time: int
) -> tuple[Tensor, State]:
    of_input, of_state = matrices[0], matrices[1]
    offsets = matrices[2:] if len(matrices) == 4 else (None, None)
    given = F.linear(x, of_input, offsets[0]).unbind(time)
    outs = []
    for step in reversed(given) if backwards else given:
        state = cell(step, lambda h: F.linear(h, of_state, offsets[1]), state)
        outs.append(state[0])
    return torch.stack(outs[::-1] if backwards else outs, time), state
