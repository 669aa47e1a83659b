"""Tests of `shared/provider/language`."""
