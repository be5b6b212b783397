"""One round of Flower's SecAgg+ in this process: its workflow and its client mod as released, calls in place of a network."""

import copy
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing.clock import Moment

RANGE, STEPS, MOST = 8.0, 1 << 22, 1000  # the workflow's own defaults: clipping, quantization range, largest weight
SHARE = 2 / 3  # of the clients, that must answer
RUN, SERVER = 1, 1


@dataclass(frozen=True)
class Taken:
    """What a round took.

    Attributes:
        clients: CPU seconds of each client that stayed.
        server: CPU seconds of the server.
        stages: The same by stage: of the median client, and of the server.
        bytes_up: What one client sent, as protobuf.
        mean: The weighted mean that came out, shape (d,), float64.
    """

    clients: tuple[float, ...]
    server: float
    stages: dict[str, dict[str, float]]
    bytes_up: int
    mean: NDArray[np.float64]


class Local:
    """What the workflow takes for its connection to the clients: each message is handled by the mod at once.

    A client's answer is cut off from its memory, as bytes would be, and so is what it is sent; neither is timed.
    """

    def __init__(self, vectors: NDArray[np.float32], weights: NDArray[np.int64], silent: Set[int]) -> None:
        self.silent = silent
        self.client: dict[int, dict[str, float]] = defaultdict(dict)
        self.server: dict[str, float] = {}
        self.bytes_up: dict[int, int] = defaultdict(int)
        self._app, self._mod = import_module("flwr.app"), import_module("flwr.client.mod").secaggplus_mod
        self._records = import_module("flwr.compat.common.recorddict_compat")
        self._wire = import_module("flwr.common.serde").recorddict_to_proto
        common = import_module("flwr.common")
        fine = common.Status(common.Code.OK, "")
        self._fitted = {
            node: common.FitRes(fine, common.ndarrays_to_parameters([vector]), int(weight), {})
            for node, (vector, weight) in enumerate(zip(vectors, weights, strict=True), 2)
        }
        self._memory = {
            node: self._app.Context(RUN, node, {}, self._app.RecordDict(), {}) for node in self._fitted
        }  # fmt: skip
        self._resumed = Moment.now()

    def begin(self) -> None:
        """From now on it is the server that works."""
        self._resumed = Moment.now()

    def end(self, stage: str) -> None:
        """Charge the server for what it did since it went on."""
        self.server[stage] = self.server.get(stage, 0.0) + (Moment.now() - self._resumed).cpu

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        """Return each client's answer; a silent one answers no more once it has shared its keys."""
        messages = list(messages)
        stage = messages[0].content.config_records["secaggplus_configs"]["stage"]
        self.end(stage)
        answers = [self._answer(message, stage) for message in messages]
        self.begin()
        return answers

    def _answer(self, message: Any, stage: str) -> Any:
        node = message.metadata.dst_node_id
        if node - 2 in self.silent and stage == "collect_masked_vectors":
            return self._app.Message(self._app.Error(1, "gone"), reply_to=message)
        given = self._app.Message(copy.deepcopy(message.content), node, "train", group_id="1")
        trained = self._app.Message(self._records.fitres_to_recorddict(self._fitted[node], True), reply_to=given)
        begun = Moment.now()
        answer = self._mod(given, self._memory[node], lambda *_: trained)
        self.client[node][stage] = (Moment.now() - begun).cpu
        self.bytes_up[node] += self._wire(answer.content).ByteSize()
        return copy.deepcopy(answer)


@contextmanager
def _quiet() -> Iterator[None]:
    log = import_module("flwr.supercore.logger").FLOWER_LOGGER
    before = log.level
    log.setLevel("CRITICAL")
    yield
    log.setLevel(before)


def one_round(vectors: NDArray[np.float32], weights: NDArray[np.int64], silent: Set[int]) -> Taken:
    """Play one round on the full graph, with shares of two thirds of the clients needed.

    Args:
        vectors: Shape (n, d), each coordinate within 8.
        weights: Examples of each client, at most 1000.
        silent: Indices of the clients that go after sharing their keys.

    Raises:
        SystemExit: If the workflow ends without a sum.
    """
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    app, server = import_module("flwr.app"), import_module("flwr.server")
    common, workflow = import_module("flwr.common"), import_module("flwr.server.workflow")
    identity = import_module("flwr.supercore.task_identity").TaskIdentity
    identity.run_id = identity.node_id = identity.task_id = RUN
    records = import_module("flwr.compat.common.recorddict_compat")
    local = Local(vectors, weights, silent)
    clients = import_module("flwr.server.client_manager").SimpleClientManager()
    proxy = import_module("flwr.server.compat.grid_client_proxy").GridClientProxy
    for index in range(len(vectors)):
        clients.register(proxy(index + 2, local, RUN))
    context = server.LegacyContext(
        app.Context(RUN, SERVER, {}, app.RecordDict(), {}), server.ServerConfig(num_rounds=1),
        server.strategy.FedAvg(min_fit_clients=len(vectors), min_available_clients=len(vectors)), clients,
    )  # fmt: skip
    start = common.ndarrays_to_parameters([np.zeros_like(vectors[0])])
    context.state.config_records["config"] = app.ConfigRecord({"current_round": 1})
    context.state.array_records["parameters"] = records.parameters_to_arrayrecord(start, True)
    secure = workflow.SecAggPlusWorkflow(
        1.0, SHARE, max_weight=float(MOST), clipping_range=RANGE, quantization_range=STEPS
    )
    with _quiet():
        local.begin()
        secure(local, context)
        local.end("open")
    ended = records.arrayrecord_to_parameters(context.state.array_records["parameters"], True)
    (mean,) = common.parameters_to_ndarrays(ended)
    stayed = [local.client[node] for node in sorted(local.client) if node - 2 not in silent]
    if not mean.any():
        raise SystemExit("Flower's workflow ended without a sum")
    typical = {stage: float(np.median([one[stage] for one in stayed])) for stage in stayed[0]}
    return Taken(
        tuple(sum(one.values()) for one in stayed), sum(local.server.values()),
        {"client": typical, "server": local.server}, max(local.bytes_up.values()), mean.astype(np.float64),
    )  # fmt: skip
