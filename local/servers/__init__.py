"""Servers on this machine: Redis, DynamoDB, the third party, and a relay for containers."""
