"""Tests of `local/servers`."""
