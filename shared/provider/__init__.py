"""The provider: one provider file at work. HTTP itself is in `wire`, and whoever sends something makes a transport."""

from shared.provider.delays import Finding
from shared.provider.provider import Provider

__all__ = ["Finding", "Provider"]
