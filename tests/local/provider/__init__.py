"""Tests of `local/provider`."""
