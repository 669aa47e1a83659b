"""Files of real APIs, with conversations."""
