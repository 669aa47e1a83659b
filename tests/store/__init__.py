"""Tests of `shared/store`."""
