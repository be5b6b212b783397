"""What a site accepts: written by the site or its consortium, never by the coordinator."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from consilia.core.errors import PlanError, Problem
from consilia.crypto.attestation.evidence import KINDS, Kind

_TPM_FORM = re.compile(r"sha256:(0|[1-9][0-9]?)(,(0|[1-9][0-9]?))*=[0-9a-f]{64}")
# Registers a measurement names, in this order, and bytes of each.
REGISTERS: dict[Kind, tuple[tuple[str, ...], int]] = {
    "sgx": (("mr_enclave",), 32),
    "tdx": (("mr_td", "rtmr0", "rtmr1", "rtmr2", "rtmr3"), 48),
    "nitro": (("PCR0", "PCR1", "PCR2"), 48),
    "sev-snp": (("measurement",), 48),
}
TCB_PARTS = ("bootloader", "tee", "snp", "microcode")
_STATUSES = ("UpToDate", "SWHardeningNeeded", "ConfigurationNeeded", "ConfigurationAndSWHardeningNeeded", "OutOfDate",
             "OutOfDateConfigurationNeeded")  # fmt: skip
_ALWAYS = {"kind", "measurements", "max_age"}
_KEYS: dict[Kind, set[str]] = {
    "sgx": {"statuses", "advisories"},
    "tdx": {"statuses", "advisories"},
    "nitro": {"roots"},
    "sev-snp": {"roots", "minimum_tcb"},
    "tpm": {"roots"},
}
_LONGEST = 7 * 24 * 3600
# Registers that software at the machine may set back to zero at any time; a key under them is open to the operator.
_RESETTABLE = {16, 23}
_TPM_REGISTERS = 24


@dataclass(frozen=True)
class Policy:
    """The clauses that evidence must fulfil. A debug mode is never accepted, so no key asks for it.

    Attributes:
        kind: The hardware.
        measurements: The code that may aggregate; one at least.
        max_age: Seconds that claims hold; then the site asks for fresh evidence.
        statuses: sgx, tdx: accepted states of the platform's firmware, in Intel's words.
        advisories: sgx, tdx: Intel's advisories that are accepted although they apply to the platform.
        minimum_tcb: sev-snp: the lowest accepted version of each part, in the order of `TCB_PARTS`.
        roots: nitro, sev-snp: SHA-256 of the root certificate (DER). tpm: SHA-256 of the attestation key's public area.
    """

    kind: Kind
    measurements: tuple[str, ...]
    max_age: int
    statuses: tuple[str, ...] = ()
    advisories: tuple[str, ...] = ()
    minimum_tcb: tuple[int, ...] = ()
    roots: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: Mapping[str, object], *, who: str = "attestation policy") -> "Policy":
        """Build a policy from a TOML table; nothing unknown and nothing doubtful is accepted.

        Raises:
            PlanError: With every fault at once.
        """
        kind = next((kind for kind in KINDS if kind == table.get("kind")), None)
        if kind is None:
            raise PlanError.of(f"{who} kind", needs=f"one of {', '.join(KINDS)}", got=_brief(table.get("kind")),
                               hint="It names the hardware that vouches for the coordinator")  # fmt: skip
        loader = _Loader(who, kind, table)
        policy = loader.policy()
        if loader.problems:
            raise PlanError(loader.problems)
        return policy


def registers_of(measurement: str) -> tuple[int, ...]:
    """Return the registers that a TPM's measurement, as a policy writes it, names."""
    return tuple(int(number) for number in measurement[len("sha256:") : measurement.index("=")].split(","))


class _Loader:
    def __init__(self, who: str, kind: Kind, table: Mapping[str, object]) -> None:
        self.who, self.kind, self.table = who, kind, table
        self.problems: list[Problem] = []

    def fault(self, key: str, needs: str, got: object, hint: str) -> None:
        self.problems.append(Problem(f"{self.who} {key}", needs, _brief(got), hint))

    def policy(self) -> Policy:
        allowed = _ALWAYS | _KEYS[self.kind]
        for key in sorted(set(self.table) - allowed):
            self.fault(key, f"to be one of {', '.join(sorted(allowed))} ({self.kind})", "an unknown key", "Remove it")
        return Policy(
            self.kind, self.measurements(), self.max_age(), self.statuses(), self.advisories(), self.minimum_tcb(),
            self.roots(),
        )  # fmt: skip

    def texts(self, key: str, *, required: bool, hint: str) -> tuple[str, ...]:
        value = self.table.get(key)
        if value is None and not required:
            return ()
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            self.fault(key, "a list with at least one text", value, hint)
            return ()
        if len(set(value)) != len(value):
            self.fault(key, "no entry twice", value, "Remove one")
        return tuple(value)

    def measurements(self) -> tuple[str, ...]:
        found = self.texts(
            "measurements", required=True,
            hint="Without a list any genuine machine passes, whatever code it runs: name the code",
        )  # fmt: skip
        for item in found:
            self.measurement(item)
        return found

    def measurement(self, item: str) -> None:
        if self.kind == "tpm":
            if not _TPM_FORM.fullmatch(item):
                self.fault("measurements", "sha256:<registers>=<64 hex digits>, such as sha256:0,4,14=ab...", item,
                           "Hash the registers' values, in ascending order, with SHA-256")  # fmt: skip
                return
            chosen = registers_of(item)
            if list(chosen) != sorted(set(chosen)) or chosen[-1] >= _TPM_REGISTERS:
                self.fault("measurements", "registers 0 to 23 in ascending order, each once", item, "Sort them")
            if _RESETTABLE & set(chosen):
                self.fault("measurements", "registers that the operator cannot reset", item,
                           "Software may set 16 and 23 back to zero and then extend what it likes: "
                           "use others")  # fmt: skip
            return
        names, size = REGISTERS[self.kind]
        parts = item.split(":")
        if len(parts) != len(names) or not all(_is_hex(part, size) for part in parts):
            self.fault("measurements", f"{':'.join(names)}, each of {2 * size} lower-case hex digits", item,
                       "Take it from the build of the aggregator, not from its evidence")  # fmt: skip
        elif set(parts[0]) == {"0"}:
            self.fault("measurements", f"a {names[0]} that is not zero", item, "Zeros are what a debug mode reports")

    def max_age(self) -> int:
        value = self.table.get("max_age")
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _LONGEST:
            self.fault("max_age", f"whole seconds, 1 to {_LONGEST}", value, "An hour is 3600")
            return 1
        return value

    def statuses(self) -> tuple[str, ...]:
        if "statuses" not in _KEYS[self.kind]:
            return ()
        found = self.texts("statuses", required=False, hint="UpToDate alone is the default") or ("UpToDate",)
        for item in set(found) - set(_STATUSES):
            self.fault("statuses", f"some of {', '.join(_STATUSES)}", item, "Revoked platforms are never accepted")
        return found

    def advisories(self) -> tuple[str, ...]:
        if "advisories" not in _KEYS[self.kind]:
            return ()
        return self.texts("advisories", required=False, hint="For example INTEL-SA-00615; leave it out for none")

    def minimum_tcb(self) -> tuple[int, ...]:
        if "minimum_tcb" not in _KEYS[self.kind]:
            return ()
        value = self.table.get("minimum_tcb")
        parts = [value.get(part) for part in TCB_PARTS] if isinstance(value, dict) and len(value) == 4 else []
        numbers = tuple(
            part for part in parts if isinstance(part, int) and not isinstance(part, bool) and 0 <= part < 256
        )
        if len(numbers) != len(TCB_PARTS):
            self.fault("minimum_tcb", f"{', '.join(TCB_PARTS)}, each 0 to 255", value,
                       "Take them from AMD's newest security bulletin for the processor")  # fmt: skip
        return numbers

    def roots(self) -> tuple[str, ...]:
        if "roots" not in _KEYS[self.kind]:
            return ()
        found = self.texts(
            "roots", required=True, hint="Pin whom you trust; docs/howto/attested-aggregator.md says how"
        )
        for item in found:
            if not _is_hex(item, 32):
                self.fault("roots", "SHA-256 fingerprints of 64 lower-case hex digits", item, "Write no colons")
        return found


def _is_hex(text: str, size: int) -> bool:
    return len(text) == 2 * size and set(text) <= set("0123456789abcdef")


def _brief(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
