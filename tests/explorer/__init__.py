"""A model checker that runs the real code, and its explorations."""
