"""One TPM 2.0: commands in, responses out.

Source:
    Trusted Computing Group, TPM 2.0 Library Specification, revision 1.59: Part 1, section 18 (structure of a command);
    Part 2, section 6.6 (response codes).
"""

import os
import select
import socket
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from consilia.core.errors import TransportError

_NO_SESSIONS, _SESSIONS = 0x8001, 0x8002
PASSWORD = 0x40000009  # TPM_RS_PW: authorisation by an empty password
_HEADER = 10
_LARGEST = 4096  # of a response
_SECONDS = 30.0
_PAUSE = 0.005
_BUSY = {0x908, 0x90A, 0x922}  # TPM_RC_YIELDED, TESTING, RETRY: the command did not start, send it again
# Without the bits that say which parameter or session: TPM_RC_POLICY_FAIL (format 1), and TPM_RC_PCR_CHANGED.
_POLICY_FAIL, _POLICY_MASK, _PCR_CHANGED = 0x09D, 0x0BF, 0x128


def sized(data: bytes) -> bytes:
    """Return a TPM2B: the length in two bytes, then the data."""
    return len(data).to_bytes(2, "big") + data


@dataclass
class Response:
    """Parameters of a response, read in order."""

    data: bytes
    at: int = 0

    def number(self, size: int) -> int:
        """Return an unsigned number of `size` bytes."""
        return int.from_bytes(self.take(size), "big")

    def sized(self) -> bytes:
        """Return the contents of a TPM2B."""
        return self.take(self.number(2))

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes.

        Raises:
            TransportError: If there are not as many.
        """
        if size > len(self.data) - self.at:
            raise _unreachable("a response that has all its fields", "one that is cut")
        self.at += size
        return self.data[self.at - size : self.at]

    def rest(self) -> bytes:
        """Return all that is left."""
        return self.take(len(self.data) - self.at)


class TpmLink:
    """An open TPM. One command at a time: not for use by two threads at once."""

    def __init__(self, path: Path) -> None:
        """Open a character device (such as /dev/tpmrm0) or connect to a software TPM's Unix socket.

        Raises:
            TransportError: If it cannot be opened.
        """
        try:
            mode = path.stat().st_mode
            if not stat.S_ISSOCK(mode) and not stat.S_ISCHR(mode):
                # Commands are written to it: a file would lose its first bytes.
                raise _unreachable(f"a character device or a socket at {path}", "another kind of file")
            if stat.S_ISSOCK(mode):
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.settimeout(_SECONDS)
                    connection.connect(str(path))
                    connection.settimeout(None)
                    self._file = connection.detach()
            else:
                self._file = os.open(path, os.O_RDWR | os.O_NOCTTY)
        except OSError as error:
            raise _unreachable(f"a TPM at {path}", error.strerror or "an error") from None

    def close(self) -> None:
        """Close the device; what is loaded in it stays until it is flushed or restarted."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self, code: int, *, handles: tuple[int, ...] = (), authorize: tuple[int, ...] = (), parameters: bytes = b"",
        gives_handle: bool = False,
    ) -> tuple[int, Response]:  # fmt: skip
        """Run one command.

        Args:
            code: The command code.
            handles: Of the objects it works on.
            authorize: A session for each handle that needs one: `PASSWORD`, or a policy session, which ends with the command.
            parameters: Marshalled.
            gives_handle: Whether the response begins with a handle.

        Returns:
            The handle (0 if none), and the parameters.

        Raises:
            TransportError: If the TPM does not answer, or refuses.
        """
        body = b"".join(handle.to_bytes(4, "big") for handle in handles)
        if authorize:
            area = b"".join(session.to_bytes(4, "big") + sized(b"") + b"\0" + sized(b"") for session in authorize)
            body += len(area).to_bytes(4, "big") + area
        body += parameters
        tag = _SESSIONS if authorize else _NO_SESSIONS
        head = tag.to_bytes(2, "big") + (_HEADER + len(body)).to_bytes(4, "big") + code.to_bytes(4, "big")
        tag, result, response = self._ask(head + body)
        deadline = time.monotonic() + _SECONDS
        while result in _BUSY and time.monotonic() < deadline:
            time.sleep(_PAUSE)
            tag, result, response = self._ask(head + body)
        if result:
            raise _refused(code, result)
        handle = response.number(4) if gives_handle else 0
        if tag == _SESSIONS:
            response = Response(response.take(response.number(4)))
        return handle, response

    def _ask(self, command: bytes) -> tuple[int, int, Response]:
        """Return the tag, the response code, and the rest of the response."""
        response = Response(self._exchange(command))
        tag, _, result = response.number(2), response.number(4), response.number(4)
        return tag, result, response

    def _exchange(self, command: bytes) -> bytes:
        try:
            while command:
                command = command[os.write(self._file, command) :]
            answer, size = b"", _HEADER
            while len(answer) < size:
                if not select.select([self._file], [], [], _SECONDS)[0]:
                    raise _unreachable(f"an answer within {_SECONDS:.0f} seconds", "none")
                part = os.read(self._file, _LARGEST)
                answer += part
                if len(answer) >= _HEADER:
                    size = int.from_bytes(answer[2:6], "big")
                if not part or not _HEADER <= size <= _LARGEST:
                    raise _unreachable("a whole response", f"{len(answer)} bytes")
        except OSError as error:
            raise _unreachable("a TPM that answers", error.strerror or "an error") from None
        return answer


def _unreachable(needs: str, got: str) -> TransportError:
    return TransportError.of("The coordinator's TPM link", needs=needs, got=got,
                             hint="Check the device's path and rights; /dev/tpmrm0 is the usual one")  # fmt: skip


def _refused(code: int, result: int) -> TransportError:
    if result == _PCR_CHANGED or result & _POLICY_MASK == _POLICY_FAIL:
        return TransportError.of(
            "The coordinator's TPM", needs="the registers that the key was made for", got="a policy check that failed",
            hint="The measured code changed: start the coordinator anew, and let the sites verify it again",
        )  # fmt: skip
    return TransportError.of(
        "The coordinator's TPM", needs=f"command {code:#x} to succeed", got=f"response code {result:#x}",
        hint="Part 2, section 6.6, of the TPM 2.0 specification says what it means",
    )  # fmt: skip
