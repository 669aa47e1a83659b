"""Tests of `local/aws`."""
