"""Tests of `shared/provider/wire`."""
