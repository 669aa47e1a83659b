"""Credentials: read by reference, attached where they may go, hidden wherever they turn up."""
