"""What the tests share: clocks, doubles of Queue and Store, servers, a simulated provider."""
