"""A client of mmb's API, with Python's standard library only."""

from .api import Client
from .transport import ApiError

__all__ = ["ApiError", "Client"]
