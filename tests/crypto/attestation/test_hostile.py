"""Bytes of a hostile coordinator: a refusal that says why, whatever they are, and never another exception."""

import contextlib
import dataclasses
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.crypto.attestation.makers import CONTEXT, MAKERS, NONCE, NOW, Quote, cbor

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation import Claims, Evidence, Policy, verify

SETTINGS = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
KINDS = list(MAKERS)
WHOLE = {kind: (maker().evidence(), maker().policy()) for kind, maker in MAKERS.items()}


def show(evidence: Evidence, policy: Policy) -> Claims | None:
    with contextlib.suppress(ProtocolError):
        return verify(evidence, policy, context=CONTEXT, nonce=NONCE, now=NOW)
    return None


@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(body=st.binary(max_size=1300), collateral=st.binary(max_size=300))
def test_any_bytes(kind: str, body: bytes, collateral: bytes) -> None:
    evidence, policy = WHOLE[kind]
    assert show(dataclasses.replace(evidence, body=body, collateral=collateral), policy) is None
    if isinstance(MAKERS[kind](), Quote):
        assert show(dataclasses.replace(evidence, body=evidence.body + body), policy) is None


@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(data=st.data())
def test_whole_evidence_with_a_piece_cut_doubled_or_replaced(kind: str, data: st.DataObject) -> None:
    evidence, policy = WHOLE[kind]
    name = data.draw(st.sampled_from(["body", "collateral"] if evidence.collateral else ["body"]))
    raw: bytes = getattr(evidence, name)
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(len(raw), start + 40)))
    changed = raw[:start] + data.draw(st.binary(max_size=40)) + raw[end:]
    if changed != raw:
        assert show(dataclasses.replace(evidence, **{name: changed}), policy) is None  # type: ignore[arg-type]


@SETTINGS
@given(raw=st.binary(max_size=400))
def test_any_message(raw: bytes) -> None:
    for message in (raw, b"CNEV\x01" + raw):
        with contextlib.suppress(ProtocolError):
            Evidence.from_bytes(message)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@SETTINGS
@given(changes=st.dictionaries(st.sampled_from(sorted(json.loads(Quote().evidence().collateral))), JSON, max_size=3))
def test_any_collateral(changes: dict[str, object]) -> None:
    evidence, policy = WHOLE["sgx"]
    table = {**json.loads(evidence.collateral), **changes}
    assert show(dataclasses.replace(evidence, collateral=json.dumps(table).encode()), policy) is None


def test_nested_collateral_does_not_end_the_stack() -> None:
    evidence, policy = WHOLE["sgx"]
    bomb = b"[" * 200_000
    with pytest.raises(ProtocolError, match="collateral"):
        verify(dataclasses.replace(evidence, collateral=bomb), policy, context=CONTEXT, nonce=NONCE, now=NOW)


FIELDS = ["module_id", "digest", "timestamp", "pcrs", "certificate", "cabundle", "public_key", "user_data", "nonce"]
VALUES = st.none() | st.booleans() | st.integers(-9, 2**64 - 1) | st.binary(max_size=60) | st.text(max_size=9)


@SETTINGS
@given(document=st.fixed_dictionaries(dict.fromkeys(FIELDS, VALUES | st.lists(VALUES, max_size=3))))
def test_any_nitro_document(document: dict[str, object]) -> None:
    evidence, policy = WHOLE["nitro"]
    body = cbor([cbor({1: -35}), {}, cbor(document), bytes(96)])
    assert show(dataclasses.replace(evidence, body=body), policy) is None
