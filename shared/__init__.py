"""Meanwhile's core: what the handlers call. Start at `wiring.py` for how the parts are put together."""
