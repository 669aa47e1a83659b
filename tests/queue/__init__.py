"""Tests of `shared/queue`."""
