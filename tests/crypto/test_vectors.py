"""Published test vectors, through the functions that the product uses."""

import pytest

from consilia.crypto.keys import ExchangeKey, derive
from consilia.crypto.prg import Keystream
from consilia.crypto.signing import SigningKey, verify


def keystream(key: bytes, counter: bytes, size: int) -> bytes:
    room = bytearray(size + 16)
    Keystream(key, counter).fill(memoryview(room), size)
    return bytes(room[:size])


def test_aes_256_in_counter_mode() -> None:
    """NIST SP 800-38A, F.5.5."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    plain = bytes.fromhex(
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
        "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
    )
    cipher = bytes.fromhex(
        "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
        "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"
    )
    assert bytes(a ^ b for a, b in zip(keystream(key, counter, 64), plain, strict=True)) == cipher


def test_aes_256_of_a_counter_of_zero_as_masks_have_it() -> None:
    """NIST AESAVS, appendix C.3 (KeySbox, 256 bits), first row."""
    key = bytes.fromhex("c47b0294dbbbee0fec4757f22ffeee3587ca4730c3d33b691df38bab076bc558")
    assert keystream(key, bytes(16), 16).hex() == "46f2fb342d6f0ab477476fc501242c5f"


@pytest.mark.parametrize(("secret", "salt", "info", "size", "output"), [
    ("0b" * 22, "000102030405060708090a0b0c", "f0f1f2f3f4f5f6f7f8f9", 42,
     "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"),
    ("".join(f"{i:02x}" for i in range(0x50)), "".join(f"{i:02x}" for i in range(0x60, 0xB0)),
     "".join(f"{i:02x}" for i in range(0xB0, 0x100)), 82,
     "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
     "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
     "cc30c58179ec3e87c14c01d5c1f3434f1d87"),
    ("0b" * 22, "", "", 42,
     "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"),
])  # fmt: skip
def test_hkdf_sha256(secret: str, salt: str, info: str, size: int, output: str) -> None:
    """RFC 5869, A.1 to A.3."""
    made = derive(bytes.fromhex(secret), info=bytes.fromhex(info), salt=bytes.fromhex(salt), size=size)
    assert made.hex() == output


@pytest.mark.parametrize(("scalar", "point", "output"), [
    ("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
     "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
     "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"),
    ("4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
     "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
     "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957"),
])  # fmt: skip
def test_x25519(scalar: str, point: str, output: str) -> None:
    """RFC 7748, 5.2."""
    assert ExchangeKey(bytes.fromhex(scalar)).agree(bytes.fromhex(point), who="it").hex() == output


def test_x25519_key_exchange() -> None:
    """RFC 7748, 6.1."""
    alice = ExchangeKey(bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"))
    bob = ExchangeKey(bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
    assert alice.public.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    agreed = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert alice.agree(bob.public, who="bob").hex() == bob.agree(alice.public, who="alice").hex() == agreed


@pytest.mark.parametrize(("seed", "public", "message", "signature"), [
    ("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
     "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"),
    ("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
     "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"),
    ("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
     "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"),
])  # fmt: skip
def test_ed25519(seed: str, public: str, message: str, signature: str) -> None:
    """RFC 8032, 7.1, tests 1 to 3."""
    key = SigningKey(bytes.fromhex(seed))
    assert key.public.hex() == public
    assert key.sign(bytes.fromhex(message)).hex() == signature
    assert verify(key.public, bytes.fromhex(signature), bytes.fromhex(message))
