"""A member's credentials as its folder has them now, for processes that run for months."""

import asyncio
import logging
import time
from typing import Final

from consilia.core.errors import StoreError, TransportError
from consilia.transport.credentials.credentials import Credentials

_log = logging.getLogger("consilia.roster")
LOOK: Final = 5.0  # seconds between looks at the roster's file


class Newest:
    """Follows the roster in a member's folder.

    Args:
        credentials: As they were read first.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._looked = time.monotonic()
        self._complained = ""

    async def read(self) -> Credentials:
        """Return the credentials of the folder's roster; those before where that is damaged, older or another consortium's."""
        self._looked = time.monotonic()
        try:
            self._credentials = await asyncio.to_thread(self._credentials.refreshed)
        except StoreError as error:
            if str(error) != self._complained:  # once, not at every look
                self._complained = str(error)
                _log.error("the roster in the folder is not taken: %s", error)
        return self._credentials

    async def require_same(self, used: Credentials) -> None:
        """Check now and then that a stream goes by certificates that still count.

        Args:
            used: What the stream began with.

        Raises:
            TransportError: If the roster names another coordinator's certificate now, or another of this member's.
        """
        if time.monotonic() - self._looked < LOOK:
            return
        now = await self.read()
        if (now.trusted, now.chain) != (used.trusted, used.chain):
            raise TransportError.of(f"the stream of {used.role} {used.name}", needs="certificates of the newest roster",
                                    got=f"those of version {used.book.version}", hint="It connects anew")  # fmt: skip
