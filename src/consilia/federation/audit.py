"""The site's own record of all that left it: one line a message, on disk before the first byte goes out."""

import json
import os
import time
from pathlib import Path

from consilia.core.canonical import Json, digest_bytes
from consilia.core.errors import ConsiliaError, StoreError
from consilia.core.update import Bytes, Release
from consilia.core.wire import decode


class AuditLog:
    """Appends to a file that only its owner may read.

    Args:
        path: The file, JSON lines.

    Guarantees:
        What cannot be written down does not leave: `note` raises before the message is sent. A line says how many bytes left,
        why, in which round, of which run or plan, and their SHA-256; never what they hold.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, message: bytes, frame: Bytes) -> None:
        """Write down that a message is about to leave.

        Args:
            message: Its id; one that is sent again has a second line with the same id.
            frame: The message.

        Raises:
            StoreError: If it cannot be written down.
        """
        line: dict[str, Json] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **_why(frame), "bytes": len(frame),
            "sha256": digest_bytes(frame), "message": message.hex(),
        }  # fmt: skip
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError.of(f"audit log {self.path}", needs="to be written before anything leaves",
                                got=error.strerror or "an error", hint="Make room: nothing was sent") from None  # fmt: skip


def _why(frame: Bytes) -> dict[str, Json]:
    try:
        item = decode(bytes(frame) if len(frame) < 1 << 20 else frame, who="audit")
    except ConsiliaError:
        return {"run": None, "round": None, "what": "other bytes"}
    if isinstance(item, Release):
        what = "an update, or its part of a sum" if item.payload else "scores"
        return {"run": None, "round": item.round, "what": what, "plan": item.plan_digest}
    run = item.body.get("run")
    told = item.body.get("stage") or item.body.get("error") or item.body.get("answer")
    return {"run": run, "round": item.round, "what": item.kind if told is None else f"{item.kind}: {told}"}
