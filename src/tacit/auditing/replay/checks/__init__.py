"""The checks, one file for each component of an engine."""
