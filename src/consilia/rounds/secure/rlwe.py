"""Sums under threshold RLWE: all sites make the key together, the coordinator adds, t of them open."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes
from consilia.crypto.rlwe import RlweCipher, RlweSums
from consilia.crypto.rlwe_keys import Contribution, JointKey, KeyShare, contribute, joint_key
from consilia.crypto.rlwe_parameters import RlweParameters
from consilia.crypto.rlwe_threshold import Opening, combine, partial
from consilia.crypto.sealing import open_sealed, seal
from consilia.rounds.secure.schemes import Ask
from consilia.rounds.secure.signed import read, sign
from consilia.secagg.framing import join, join_named, split, split_named
from consilia.secagg.roster import Identity, Roster

_COMMIT, _PART, _JOIN, _OPEN = "commit", "part", "join", "open"
_WHO = "the making of the joint key"


class RlweSite:
    """A site's half.

    Args:
        identity: The site's keys.
        roster: All sites; their order numbers them.
        parameters: The plan's.
        context: What the key is for, 32 bytes.

    Guarantees:
        Every part of the ceremony is signed by the site it comes from, and each share sealed to the one site that it is for.
        What the scheme guarantees then, and what not: `crypto.rlwe`, `crypto.rlwe_threshold`.
    """

    def __init__(self, identity: Identity, roster: Roster, parameters: RlweParameters, context: bytes) -> None:
        self._identity = identity
        self._roster = roster
        self._parameters = parameters
        self._context = context
        self._numbers = {member.name: number for number, member in enumerate(roster.members, 1)}
        self._made: Contribution | None = None
        self._commitments: dict[int, bytes] = {}
        self._key: tuple[JointKey, KeyShare] | None = None
        self._answered: set[bytes] = set()  # contexts
        self._newest = (b"", b"", b"")  # context, what was asked and the answer: it may be asked for again

    def step(self, step: str, content: bytes, rng: SecretRng) -> bytes:
        """Commit to a part of the key; then give it, with everyone's share of it; then put together what came."""
        if step == _COMMIT:
            self._made, self._key = contribute(self._parameters, self._mine, self._context, rng), None
            self._commitments = {}
            return sign(self._identity, [self._context, b"commitment"], self._made.commitment)
        made = self._made
        if made is None:
            raise self._refusal(f"the step {_COMMIT} first", step)
        if step == _PART and not self._commitments:
            signed = split_named(content, who=_WHO)
            found = {self._numbers.get(name, 0): read(self._roster, name, [self._context, b"commitment"], one)
                     for name, one in signed.items()}  # fmt: skip
            if set(found) != set(self._numbers.values()) or found[self._mine] != made.commitment:
                raise self._refusal("the commitment of every site, its own as it was", f"those of {sorted(signed)}")
            self._commitments = found
            return self._part(made, rng)
        if step == _JOIN and self._commitments:
            self._join(made, content)
            return b""
        raise self._refusal("the steps of the ceremony, in their order", step)

    def _part(self, made: Contribution, rng: SecretRng) -> bytes:
        shares = {}
        for member in self._roster.members:
            if member.name != self._identity.name:
                labels = [self._context, b"share", member.name.encode()]
                signed = sign(self._identity, labels, made.shares[self._numbers[member.name]])
                shares[member.name] = seal(member.sealing, signed, info=self._info(member.name), rng=rng)
        return join([sign(self._identity, [self._context, b"part"], made.public), join_named(shares)])

    def _join(self, made: Contribution, content: bytes) -> None:
        named, sealed = (split_named(part, who=_WHO) for part in split(content, 2, who=_WHO))
        publics: dict[int, Bytes] = {
            self._numbers.get(name, 0): read(self._roster, name, [self._context, b"part"], one)
            for name, one in named.items()
        }
        shares: dict[int, Bytes] = {self._mine: made.shares[self._mine]}
        labels = [self._context, b"share", self._identity.name.encode()]
        for name, one in sealed.items():
            opened = open_sealed(
                self._identity.sealing, one, info=self._info(self._identity.name), who=f"the share of {name}"
            )
            shares[self._numbers.get(name, 0)] = read(self._roster, name, labels, opened)
        key = joint_key(self._parameters, self._context, publics, self._commitments)
        self._key = key, KeyShare.gather(self._parameters, self._mine, shares)
        self._made = None  # nobody needs this site's own part any more

    def require_key(self) -> None:
        """Check that the ceremony has come to its end here."""
        self._held()

    def encrypt(self, context: bytes, values: NDArray[np.int64], rng: SecretRng) -> bytes:
        """Encrypt the one vector of a context."""
        key, share = self._held()
        return RlweCipher(self._parameters, key, share, context).encrypt(values, rng)

    def open(self, content: bytes, context: bytes, dim: int, cohort: Iterable[str], rng: SecretRng) -> bytes:
        """Return this site's part of the opening of a sum of this context, once."""
        _, share = self._held()
        if self._newest[:2] == (context, content):
            return self._newest[2]
        inside, helping, masks = split(content, 3, who="a sum to open")
        contributors, decrypters = (
            tuple(self._numbers.get(name, 0) for name in split_named(part, who="a sum to open"))
            for part in (inside, helping)
        )
        opening = Opening(context, dim, contributors, decrypters)
        answer = partial(self._parameters, share, opening, masks, rng, answered=self._answered)
        self._answered.add(context)
        self._newest = context, content, answer
        return answer

    @property
    def _mine(self) -> int:
        return self._numbers[self._identity.name]

    def _info(self, reader: str) -> bytes:
        return join([b"consilia rlwe share", self._context, reader.encode()])

    def _held(self) -> tuple[JointKey, KeyShare]:
        if self._key is None:
            raise self._refusal("its share of the joint key", "none yet")
        return self._key

    def _refusal(self, needs: str, got: str) -> ProtocolError:
        return ProtocolError.of(f"site {self._identity.name}", needs=needs, got=got,
                                hint="Let the coordinator begin the run's keys anew")  # fmt: skip


class RlweCoordinator:
    """The coordinator's half: it holds no share of the key.

    Args:
        names: All sites, ascending.
        parameters: The plan's.
    """

    def __init__(self, names: tuple[str, ...], parameters: RlweParameters) -> None:
        self._names = names
        self._parameters = parameters
        self._sums = RlweSums(parameters)

    def ceremony(self, ask: Ask) -> None:
        """Carry commitments, then parts, then each site's shares."""
        commitments = self._all(ask(_COMMIT, dict.fromkeys(self._names, b"")))
        parts = self._all(ask(_PART, dict.fromkeys(self._names, join_named(commitments))))
        publics, sealed = {}, {}
        for name, part in parts.items():
            publics[name], shares = split(part, 2, who=name)
            sealed[name] = split_named(shares, who=name)
        inboxes = {
            reader: join_named({name: shares[reader] for name, shares in sealed.items() if reader in shares})
            for reader in self._names
        }
        self._all(ask(_JOIN, {reader: join([join_named(publics), inboxes[reader]]) for reader in self._names}))

    def add(self, payloads: Iterable[Bytes], dim: int) -> bytes:
        """Return the encrypted sum."""
        return self._sums.add(payloads, dim)

    def open(
        self, total: bytes, context: bytes, dim: int, contributors: Iterable[str], cohort: Iterable[str], ask: Ask
    ) -> NDArray[np.int64]:
        """Have the sum opened by the first t of those whose vectors are in it: they have just answered."""
        inside = sorted(contributors)
        helping = inside[: self._parameters.threshold]
        numbers = {name: number for number, name in enumerate(self._names, 1)}
        opening = Opening(
            context, dim, tuple(numbers[name] for name in inside), tuple(numbers[name] for name in helping)
        )
        asked = [join_named(dict.fromkeys(names, b"")) for names in (inside, helping)]
        content = join([*asked, self._sums.to_open(total, dim)])
        answers = ask(_OPEN, dict.fromkeys(helping, content))
        return combine(self._sums, total, opening, {numbers[name]: answer for name, answer in answers.items()})

    def _all(self, answers: dict[str, bytes]) -> dict[str, bytes]:
        if missing := [name for name in self._names if name not in answers]:
            raise ProtocolError.of(_WHO, needs="every site of the run", got=f"no answer of {', '.join(missing)}",
                                   hint="Wait until these sites are back, then resume")  # fmt: skip
        return answers
