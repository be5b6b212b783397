"""The one place where the version stands."""

from typing import Final

VERSION: Final = "0.1.0"
