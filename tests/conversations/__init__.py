"""Whole conversations with providers, as files, and the tests that replay them."""
