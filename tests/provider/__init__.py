"""Tests of `shared/provider`."""
