"""Sums under Paillier: one site makes the key for all sites, the coordinator adds, one site opens."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.paillier import PaillierCipher, PaillierSums
from consilia.crypto.paillier_handover import hand_over, take_over
from consilia.crypto.paillier_key import PaillierKey, keypair
from consilia.crypto.paillier_lanes import Lanes
from consilia.crypto.paillier_opening import Opening
from consilia.crypto.paillier_public import PaillierPublic
from consilia.rounds.secure.schemes import Ask
from consilia.rounds.secure.signed import read, sign
from consilia.secagg.framing import join, join_named, split, split_named
from consilia.secagg.roster import Identity, Roster

_GREET, _MAKE, _TAKE, _OPEN = "greet", "make", "take", "open"
_GREETING, _WHO = b"reader of a key", "the greetings of the sites"


def _number(names: tuple[str, ...], site: str) -> int:
    """Return a site's number; 0, which no site has, for a stranger."""
    return names.index(site) + 1 if site in names else 0


class PaillierSite:
    """A site's half.

    Args:
        identity: The site's keys.
        roster: All sites.
        lanes: How the plan's vectors lie in plaintexts.
        context: What the key is for, 32 bytes.
        fewest: Vectors in a sum that it helps to open, at least.

    Guarantees:
        The key is sealed to a key that its reader drew for this one time, so a key handed over before a restart cannot be
        handed over again to a site that has forgotten what it opened under it.
    """

    def __init__(self, identity: Identity, roster: Roster, lanes: Lanes, context: bytes, fewest: int) -> None:
        self._identity = identity
        self._roster = roster
        self._lanes = lanes
        self._context = context
        self._fewest = fewest
        self._names = tuple(member.name for member in roster.members)
        self._key: PaillierKey | None = None
        self._reader: ExchangeKey | None = None
        self._answered: set[bytes] = set()  # contexts
        self._newest = (b"", b"", b"")  # context, what was asked and the answer: it may be asked for again

    def step(self, step: str, content: bytes, rng: SecretRng) -> bytes:
        """Say what the key shall be sealed to; make it for all; or take the one that the first site of the roster made."""
        maker, labels = self._names[0], [self._context, _GREETING]
        if step == _GREET:
            self._reader = ExchangeKey.draw(rng)
            return sign(self._identity, labels, self._reader.public)
        if step == _MAKE and self._identity.name == maker:
            greeted = split_named(content, who=_WHO)
            readers = {name: read(self._roster, name, labels, greeting) for name, greeting in greeted.items()}
            self._key = keypair(self._lanes.bits, rng)
            sealed = {
                name: hand_over(self._key, context=self._context, maker=self._identity.signing, reader=reader, rng=rng)
                for name, reader in readers.items()
            }
            return join([self._key.public.to_bytes(), join_named(sealed)])
        if step == _TAKE and self._reader is not None:
            self._key = take_over(
                content, context=self._context, maker=self._roster.by_name[maker].verifying, reader=self._reader,
                bits=self._lanes.bits,
            )  # fmt: skip
            self._reader = None
            return b""
        raise self._refusal(f"the steps {_GREET}, {_MAKE} or {_TAKE}, in its turn", step)

    def require_key(self) -> None:
        """Check that the ceremony has come to its end here."""
        self._held()

    def encrypt(self, context: bytes, values: NDArray[np.int64], rng: SecretRng) -> bytes:
        """Encrypt the one vector of a context."""
        key = self._held()
        cipher = PaillierCipher(
            key.public, self._lanes, key.group, context, _number(self._names, self._identity.name)
        )  # fmt: skip
        return cipher.encrypt(values, rng)

    def open(self, content: bytes, context: bytes, dim: int, cohort: Iterable[str], rng: SecretRng) -> bytes:
        """Open the sum of a context, if it is this site's turn and the sum is of enough agreed vectors."""
        key = self._held()
        if self._newest[:2] == (context, content):
            return self._newest[2]
        listed, total = split(content, 2, who="a sum to open")
        contributors = tuple(_number(self._names, name) for name in split_named(listed, who="a sum to open"))
        opening = Opening(
            context, dim, tuple(_number(self._names, name) for name in cohort), contributors, self._fewest
        )
        values = key.decrypt(
            total,
            opening,
            lanes=self._lanes,
            site=_number(self._names, self._identity.name),
            answered=self._answered,
        )
        answer = np.ascontiguousarray(values, "<i8").tobytes()
        self._answered.add(context)
        self._newest = context, content, answer
        return answer

    def _held(self) -> PaillierKey:
        if self._key is None:
            raise self._refusal("the key that the first site makes", "none yet")
        return self._key

    def _refusal(self, needs: str, got: str) -> ProtocolError:
        return ProtocolError.of(f"site {self._identity.name}", needs=needs, got=got,
                                hint="Let the coordinator begin the run's keys anew")  # fmt: skip


class PaillierCoordinator:
    """The coordinator's half: it never holds the key.

    Args:
        names: All sites, ascending.
        lanes: How the plan's vectors lie in plaintexts.
        fewest: Vectors in a sum, at least.
    """

    def __init__(self, names: tuple[str, ...], lanes: Lanes, fewest: int) -> None:
        self._names = names
        self._lanes = lanes
        self._fewest = fewest
        self._sums: PaillierSums | None = None

    def ceremony(self, ask: Ask) -> None:
        """Let the first site make the key and carry it, sealed, to the others."""
        maker, others = self._names[0], self._names[1:]
        greeted = ask(_GREET, dict.fromkeys(others, b""))
        if missing := [name for name in others if name not in greeted]:
            raise _missing(missing, "every site, to say what the key shall be sealed to")
        made = ask(_MAKE, {maker: join_named(greeted)})
        if maker not in made:
            raise _missing([maker], "the site that makes the key")
        public, sealed = split(made[maker], 2, who=maker)
        self._sums = PaillierSums(PaillierPublic.from_bytes(public, who=maker), self._lanes)
        taken = ask(_TAKE, split_named(sealed, who=maker))
        if missing := [name for name in others if name not in taken]:
            raise _missing(missing, "every site, to take the key")

    def add(self, payloads: Iterable[Bytes], dim: int) -> bytes:
        """Return the encrypted sum."""
        return self._ready().add(payloads, dim)

    def open(
        self, total: bytes, context: bytes, dim: int, contributors: Iterable[str], cohort: Iterable[str], ask: Ask
    ) -> NDArray[np.int64]:
        """Have the sum opened by the one site whose turn it is."""
        inside = tuple(contributors)
        numbers = tuple(_number(self._names, name) for name in cohort)
        opener = self._names[Opening(context, dim, numbers, (), self._fewest).opener - 1]
        content = join([join_named(dict.fromkeys(inside, b"")), total])
        answer = ask(_OPEN, {opener: content}).get(opener)
        if answer is None or len(answer) != 8 * dim:
            raise _missing([opener], "the site whose turn it is to open the sum")
        return np.frombuffer(answer, "<i8").astype(np.int64)

    def _ready(self) -> PaillierSums:
        if self._sums is None:
            raise _missing([self._names[0]], "the key that the first site makes")
        return self._sums


def _missing(sites: Iterable[str], needs: str) -> ProtocolError:
    return ProtocolError.of("the secure sum", needs=needs, got=f"no answer of {', '.join(sites)}",
                            hint="Wait until these sites are back, then resume")  # fmt: skip
