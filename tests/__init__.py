"""The tests: one module per source module, and some for the whole."""
