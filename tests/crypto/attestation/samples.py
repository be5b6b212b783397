"""Real evidence, signed by the makers of real hardware. It is read where it lies and not part of the repository."""

import base64
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from consilia.crypto.attestation import Evidence, Policy

FOLDER = Path(os.environ.get("CONSILIA_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data")) / "attestation"
KEY = bytes(range(32))
AMD_MILAN = "69d063b45344d26a2e94e1f4210de49ef555308287d4c174445c95639a540bcd"
AWS_NITRO = "641a0321a3e244efe456463195d606317ed7cdcc3c1756e09893f3c68f79bb5b"
SGX_ADVISORIES = ["INTEL-SA-00289", "INTEL-SA-00615"]


@dataclass(frozen=True)
class Sample:
    evidence: Evidence
    policy: Policy
    now: int  # when it was valid


def read(name: str) -> bytes:
    if not FOLDER.is_dir():
        pytest.skip("the samples are not here: set CONSILIA_SHARED_DATA to the folder that has attestation/")
    return (FOLDER / name).read_bytes()


def der(pem: bytes) -> bytes:
    return base64.b64decode(b"".join(line for line in pem.splitlines() if not line.startswith(b"-----")))


def sev_snp() -> Sample:
    measurement = "7a1e5c266c0108dbc9bb94fa926951320940915d0aafb42464bd88b579ea158d3e1a0dc39b2c60bd95b9c480cd81841f"
    chain = read("vcek_milan.der") + der(read("ask_milan.pem")) + der(read("ark_milan.pem"))
    policy = Policy.of({
        "kind": "sev-snp", "measurements": [measurement], "max_age": 3600, "roots": [AMD_MILAN],
        "minimum_tcb": {"bootloader": 3, "tee": 0, "snp": 8, "microcode": 115},
    })  # fmt: skip
    return Sample(
        Evidence("sev-snp", bytes.fromhex(read("report_milan.hex").decode()), KEY, chain), policy, 1_690_000_000
    )


def nitro() -> Sample:
    policy = Policy.of({
        "kind": "nitro", "measurements": [":".join(["0" * 95 + "1"] * 3)], "max_age": 3600, "roots": [AWS_NITRO],
    })  # fmt: skip
    return Sample(Evidence("nitro", base64.b64decode(read("valid-attestation-doc-base64")), KEY), policy, 1_695_049_411)


def sgx() -> Sample:
    policy = Policy.of({
        "kind": "sgx", "max_age": 3600,
        "measurements": ["33d8736db756ed4997e04ba358d27833188f1932ff7b1d156904d3f560452fbb"],
        "statuses": ["ConfigurationAndSWHardeningNeeded"], "advisories": SGX_ADVISORIES,
    })  # fmt: skip
    return Sample(Evidence("sgx", read("sgx_quote"), KEY, read("sgx_quote_collateral.json")), policy, 1_750_430_000)


def tdx() -> Sample:
    registers = [
        "91eb2b44d141d4ece09f0c75c2c53d247a3c68edd7fafe8a3520c942a604a407de03ae6dc5f87f27428b2538873118b7",
        "44c0197b39157fdd7a4dcc44767f9d6b0bb3977c7a8e347b8492f827fe9d9e5c48aca29b220b80b6a540cf994b9bc9c0",
        "0084452c01668329d4bc06acdf58a7205c26743304509973949e5619bf81a6a7aea8c323c173019b3093d54e579e9378",
        "d833feef2cd945148aa38ead2c53e9b7f138190aaaebfc551dccd829fc207aa3ba80b70870d7330733642e01d48c3132",
        "0" * 96,
    ]
    policy = Policy.of({"kind": "tdx", "max_age": 3600, "measurements": [":".join(registers)]})
    return Sample(Evidence("tdx", read("tdx_quote"), KEY, read("tdx_quote_collateral.json")), policy, 1_750_430_000)


SAMPLES = {"sgx": sgx, "tdx": tdx, "nitro": nitro, "sev-snp": sev_snp}
