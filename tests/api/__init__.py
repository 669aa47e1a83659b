"""Tests of `shared/api`."""
