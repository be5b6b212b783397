"""Digests: one for each content, also where the last content is known again."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from consilia.core.canonical import LastDigest, digest_bytes


@given(st.lists(st.binary(max_size=3), max_size=12))
def test_the_last_bytes_are_known_again_and_others_are_not_taken_for_them(items: list[bytes]) -> None:
    last = LastDigest()
    for item in items:
        expected = hashlib.sha256(item).hexdigest()
        assert last(item) == last(memoryview(item)) == digest_bytes(item) == expected
