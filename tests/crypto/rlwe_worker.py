"""One role of threshold RLWE in a process of its own: a site, or the coordinator.

    python -m tests.crypto.rlwe_worker site NUMBER SITES THRESHOLD SEED
    python -m tests.crypto.rlwe_worker coordinator 0 SITES THRESHOLD -

Reads one JSON object a line, {"do": name, ...} with bytes in base64, and answers with one.
"""

import base64
import json
import sys
from typing import Any

import numpy as np

from consilia.core.randomness import SecretRng
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.rlwe import RlweCipher, RlweSums
from consilia.crypto.rlwe_keys import JointKey, KeyShare, contribute, joint_key
from consilia.crypto.rlwe_parameters import RlweParameters
from consilia.crypto.rlwe_threshold import Opening, combine, partial
from consilia.crypto.sealing import open_sealed, seal

RUN, ROUND = b"a run in processes", b"round 1 of it"
Message = dict[str, Any]


def text(payload: bytes | memoryview) -> str:
    return base64.b64encode(payload).decode()


def octets(written: dict[str, str]) -> dict[int, bytes]:
    return {int(number): base64.b64decode(payload) for number, payload in written.items()}


class Site:
    def __init__(self, number: int, parameters: RlweParameters, seed: bytes) -> None:
        self.number, self.parameters, self.rng = number, parameters, SecretRng(seed)
        self.exchange = ExchangeKey.draw(self.rng.derive("exchange"))
        self.joint: JointKey | None = None
        self.share: KeyShare | None = None

    def begin(self) -> Message:
        return {"exchange": text(self.exchange.public)}

    def contribute(self, exchange: dict[str, str]) -> Message:
        made = contribute(self.parameters, self.number, RUN, self.rng.derive("key"))
        readers = octets(exchange)
        sealed = {
            to: text(seal(readers[to], share, info=b"%d>%d" % (self.number, to), rng=self.rng))
            for to, share in made.shares.items()
        }
        return {"public": text(made.public), "commitment": text(made.commitment), "sealed": sealed}

    def gather(self, sealed: dict[str, str], publics: dict[str, str], commitments: dict[str, str]) -> Message:
        shares = {
            sender: open_sealed(self.exchange, payload, info=b"%d>%d" % (sender, self.number), who="a share")
            for sender, payload in octets(sealed).items()
        }
        self.joint = joint_key(self.parameters, RUN, octets(publics), octets(commitments))
        self.share = KeyShare.gather(self.parameters, self.number, shares)
        return {}

    def encrypt(self, values: list[int]) -> Message:
        assert self.joint is not None
        assert self.share is not None
        cipher = RlweCipher(self.parameters, self.joint, self.share, ROUND)
        return {"payload": text(cipher.encrypt(np.array(values), self.rng.derive("encrypt")))}

    def partial(self, masks: str, dim: int, contributors: list[int], decrypters: list[int]) -> Message:
        assert self.share is not None
        opening = Opening(ROUND, dim, tuple(contributors), tuple(decrypters))
        return {
            "answer": text(
                partial(
                    self.parameters,
                    self.share,
                    opening,
                    base64.b64decode(masks),
                    self.rng.derive("flood"),
                    answered=set(),
                )
            )
        }


class Coordinator:
    def __init__(self, parameters: RlweParameters) -> None:
        self.sums = RlweSums(parameters)
        self.passed: list[Message] = []

    def relay(self, messages: Message) -> Message:
        self.passed.append({"read": {name: octets(part) for name, part in messages.items()}, "wire": messages})
        return {}

    def add(self, payloads: dict[str, str], dim: int) -> Message:
        self.total = self.sums.add(octets(payloads).values(), dim)
        return {"masks": text(self.sums.to_open(self.total, dim))}

    def combine(self, answers: dict[str, str], dim: int, contributors: list[int], decrypters: list[int]) -> Message:
        opening = Opening(ROUND, dim, tuple(contributors), tuple(decrypters))
        return {"values": combine(self.sums, self.total, opening, octets(answers)).tolist()}


def main() -> None:
    role, number, sites, threshold, seed = sys.argv[1:]
    parameters = RlweParameters(int(sites), int(threshold), int(sites), 1000, 2)
    actor = Site(int(number), parameters, bytes.fromhex(seed)) if role == "site" else Coordinator(parameters)
    kept: list[bytes] = []
    for line in sys.stdin:
        message = json.loads(line)
        do = message.pop("do")
        if do == "hold":  # something planted, that a search must find
            kept.append(base64.b64decode(message["what"]))
            answer: Message = {}
        else:
            answer = getattr(actor, do)(**message)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
