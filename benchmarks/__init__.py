"""Benchmarks that are tests first: definitions with expected counts, and records of runs."""
