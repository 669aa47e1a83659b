"""Tests of `handlers`."""
