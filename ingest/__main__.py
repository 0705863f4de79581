"""`python -m ingest` is `firstfault`."""

from ingest.cli import main

main()
