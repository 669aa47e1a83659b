"""The whole of Meanwhile on one machine: stand-ins for AWS and for the provider. Nothing here is deployed."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
