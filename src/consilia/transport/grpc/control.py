"""Requests of operators: one JSON object each way, and errors that keep their wording and exit code."""

import json
import logging
from collections.abc import Callable
from typing import Any

import grpc

from consilia.core.canonical import canonical_bytes
from consilia.core.errors import (
    BudgetExceeded,
    ConsiliaError,
    DataError,
    PlanError,
    Problem,
    ProtocolError,
    StoreError,
    TransportError,
)  # fmt: skip
from consilia.transport.credentials.book import Entry
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.grpc.channel import CONTROL, MAX_CONTROL, SERVICE, client_options, same
from consilia.transport.grpc.probe import refusal

_log = logging.getLogger("consilia.hub")
Control = Callable[[Entry, dict[str, Any]], dict[str, Any]]
_WAIT = 30.0  # seconds for an answer
_KINDS = (PlanError, DataError, BudgetExceeded, ProtocolError, StoreError, TransportError, ConsiliaError)


def answered(control: Control, entry: Entry, request: bytes) -> bytes:
    """Answer a request, or say in the answer why not."""
    try:
        return _short(
            canonical_bytes(control(entry, _object(_short(request, "coordinator"), "coordinator"))), "coordinator"
        )
    except Exception as error:
        if not isinstance(error, ConsiliaError):
            _log.error("a request of operator %s failed", entry.name, exc_info=error)
            error = ConsiliaError.of("coordinator", needs="to answer", got=f"an error of its own: {type(error).__name__}",
                                     hint="Its log says more")  # fmt: skip
        problems = [{"who": one.who, "needs": one.needs, "got": one.got, "hint": one.hint} for one in error.problems]
        kind = next(one.__name__ for one in _KINDS if isinstance(error, one))
        return canonical_bytes({"error": {"kind": kind, "exit_code": error.exit_code, "problems": problems}})


def call(address: str, credentials: Credentials, request: dict[str, Any]) -> dict[str, Any]:
    """Ask the coordinator something as an operator.

    Args:
        address: host:port.
        credentials: The operator's own.
        request: A JSON object of at most 1 MB.

    Raises:
        ProtocolError: If the request is longer.
        TransportError: If the coordinator cannot be reached, or does not take this operator.
        ConsiliaError: Of the class that it has there, if the coordinator cannot do what is asked.
    """
    raw = _short(canonical_bytes(request), "operator")
    secure = grpc.ssl_channel_credentials(credentials.trusted, credentials.tls_key, credentials.chain)
    with grpc.secure_channel(address, secure, options=client_options(credentials.book.coordinator.dns)) as channel:
        ask = channel.unary_unary(f"/{SERVICE}/{CONTROL}", request_serializer=same, response_deserializer=same)
        try:
            answer = _object(ask(raw, timeout=_WAIT), "operator")
        except grpc.RpcError as error:
            raise refusal(address, credentials, error.code(), error.details() or "") from None
    if "error" in answer:
        raise _error(answer["error"])
    return answer


def _short(raw: bytes, who: str) -> bytes:
    if len(raw) > MAX_CONTROL:
        raise ProtocolError.of(who, needs=f"requests and answers of at most {MAX_CONTROL} bytes", got=str(len(raw)),
                               hint="Ask for less at a time")  # fmt: skip
    return raw


def _object(raw: bytes, who: str) -> dict[str, Any]:
    try:
        value = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ProtocolError.of(who, needs="a JSON object", got="something else",
                               hint="Both ends must run compatible versions")  # fmt: skip
    return value


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON number")


def _error(value: object) -> ConsiliaError:
    try:
        if not isinstance(value, dict):
            raise TypeError
        kind = next((one for one in _KINDS if one.__name__ == value["kind"]), ConsiliaError)
        return kind([Problem(*(str(one[key]) for key in ("who", "needs", "got", "hint"))) for one in value["problems"]])
    except (KeyError, TypeError):
        return ProtocolError.of("operator", needs="an answer or a reason", got="something else",
                                hint="Both ends must run compatible versions")  # fmt: skip
