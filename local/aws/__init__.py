"""AWS on this machine, without Docker: the gateway, the functions, the schedule, the stream, the wake-ups."""
