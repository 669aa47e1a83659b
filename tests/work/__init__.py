"""Tests of `shared/work`."""
