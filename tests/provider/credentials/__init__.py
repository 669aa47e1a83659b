"""Tests of `shared/provider/credentials`."""
