"""Rényi divergences of every event at any order, as upper bounds, and what they convert to."""
