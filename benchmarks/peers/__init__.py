"""Peers at the same work: what users would pick instead, each in an environment of its own."""
