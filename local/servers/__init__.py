"""Servers on this machine: Redis, DynamoDB, the other company, and a relay for containers."""
