"""HTTP to providers that cannot hang, leak or stray."""
