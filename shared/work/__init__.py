"""What runs without a caller: the worker, its tick, reconcile, notifications."""
