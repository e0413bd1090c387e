"""Experiments about where functions run, and about how workers and processes wait for packets (MiddleNet)."""
