"""The soak: everything at once, broken at random, and a checker that reads afterwards what happened."""
