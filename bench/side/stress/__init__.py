"""Experiments about what is lost: under floods, under changes, and at the limit."""
