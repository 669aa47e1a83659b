"""Tests of `local/demo`."""
