"""What the long-running processes log: one JSON object a line on stderr, without the text of exceptions."""

import json
import logging
import os
import sys
import time
import traceback


class _Lines(logging.Formatter):
    """Formats a record as JSON. Of an exception the class and where it arose are told: its text may quote data."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(), "part": record.name, "message": record.getMessage(),
        }  # fmt: skip
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            frames = traceback.extract_tb(record.exc_info[2])
            line["at"] = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames[-8:]))
        return json.dumps(line, ensure_ascii=False)


def start(*, verbose: bool) -> None:
    """Send this process's log to stderr; call it before gRPC is imported."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own words on stderr are no JSON, and ours say why
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    root = logging.getLogger("consilia")
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    root.propagate = False
