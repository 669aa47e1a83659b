"""Faults on real servers: what breaks for real must lose nothing and do nothing twice."""
