"""Requests of operators: one JSON object each way, and errors that keep their wording and exit code."""

import json
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

Control = Callable[[Entry, dict[str, Any]], dict[str, Any]]
_WAIT = 30.0  # seconds for an answer
_CLASSES = {
    one.exit_code: one for one in (PlanError, DataError, BudgetExceeded, ProtocolError, StoreError, TransportError)
}


def answered(control: Control, entry: Entry, request: bytes) -> bytes:
    """Answer a request, or say in the answer why not."""
    try:
        answer = canonical_bytes(control(entry, _object(request, "coordinator")))
        if len(answer) > MAX_CONTROL:
            raise ProtocolError.of("coordinator", needs=f"answers of at most {MAX_CONTROL} bytes", got=f"{len(answer)}",
                                   hint="Ask for less at a time")  # fmt: skip
        return answer
    except ConsiliaError as error:
        problems = [{"who": one.who, "needs": one.needs, "got": one.got, "hint": one.hint} for one in error.problems]
        return canonical_bytes({"error": {"exit_code": error.exit_code, "problems": problems}})


def call(address: str, credentials: Credentials, request: dict[str, Any]) -> dict[str, Any]:
    """Ask the coordinator something as an operator.

    Args:
        address: host:port.
        credentials: The operator's own.
        request: A JSON object of at most 1 MB.

    Raises:
        TransportError: If the coordinator cannot be reached, or does not take this operator.
        ConsiliaError: Of the class that it has there, if the coordinator cannot do what is asked.
    """
    secure = grpc.ssl_channel_credentials(credentials.trusted, credentials.tls_key, credentials.chain)
    with grpc.secure_channel(address, secure, options=client_options(credentials.book.coordinator.dns)) as channel:
        ask = channel.unary_unary(f"/{SERVICE}/{CONTROL}", request_serializer=same, response_deserializer=same)
        try:
            answer = _object(ask(canonical_bytes(request), timeout=_WAIT), "operator")
        except grpc.RpcError as error:
            raise refusal(address, credentials, error.code(), error.details() or "") from None
    if "error" in answer:
        raise _error(answer["error"])
    return answer


def _object(raw: bytes, who: str) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ProtocolError.of(who, needs="a JSON object", got="something else",
                               hint="Both ends must run compatible versions")  # fmt: skip
    return value


def _error(value: object) -> ConsiliaError:
    try:
        if not isinstance(value, dict):
            raise TypeError
        kind = _CLASSES.get(value["exit_code"], ConsiliaError)
        return kind([Problem(*(str(one[key]) for key in ("who", "needs", "got", "hint"))) for one in value["problems"]])
    except (KeyError, TypeError):
        return ProtocolError.of("operator", needs="an answer or a reason", got="something else",
                                hint="Both ends must run compatible versions")  # fmt: skip
