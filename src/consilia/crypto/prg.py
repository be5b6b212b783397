"""Masks: words of an AES-256-CTR keystream, added to a vector where it lies.

A key masks one vector once. Everything is done a block at a time: a block of the vector and a block of the keystream stay
in the processor's cache while all the masks pass over them, which is what makes masks cost little more than AES.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from consilia.core.ring import Words

_BLOCK = 1 << 16  # bytes; 16 kB to 256 kB are equally quick
_ZEROS = memoryview(bytes(_BLOCK))
_SLACK = 16  # older releases of the cipher's library want room for one more block
_AT_ONCE = 64  # masks passed over a vector together: more gain nothing, and each holds a cipher's state


@dataclass(frozen=True)
class Mask:
    """A mask to add or to take away.

    Attributes:
        key: 32 secret bytes, for this mask alone.
        add: True to add it, False to subtract it.
    """

    key: bytes = field(repr=False)
    add: bool = True


class Keystream:
    """The bytes of AES-256 in counter mode: unpredictable without the key.

    Source:
        NIST SP 800-38A, section 6.5.
    """

    def __init__(self, key: bytes, counter: bytes = bytes(16)) -> None:
        self._cipher = Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor()

    def fill(self, buffer: memoryview, size: int) -> None:
        """Write the next `size` bytes, at most 65536, into a buffer with room for 16 more."""
        self._cipher.update_into(_ZEROS[:size], buffer)


def apply_masks(words: Words, masks: Sequence[Mask]) -> None:
    """Add masks to a vector of shape (d,) and subtract others from it, in place; words wrap.

    Args:
        words: Unsigned words of any width, contiguous; changed.
        masks: What to add and to subtract.

    Guarantees:
        A mask's words are computationally indistinguishable from uniform on the whole ring for anyone without its key.
    """
    room = bytearray(_BLOCK + _SLACK)
    buffer = memoryview(room)
    step = _BLOCK // words.itemsize
    stream = np.frombuffer(room, words.dtype, step)
    for first in range(0, len(masks), _AT_ONCE):
        some = [(Keystream(mask.key), np.add if mask.add else np.subtract) for mask in masks[first : first + _AT_ONCE]]
        for start in range(0, words.size, step):
            block = words[start : start + step]
            drawn, size = stream[: block.size], block.nbytes
            for keystream, operate in some:
                keystream.fill(buffer, size)
                operate(block, drawn, out=block)
