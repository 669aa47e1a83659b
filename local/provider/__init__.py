"""Tools for provider files: `python -m local.provider`."""
