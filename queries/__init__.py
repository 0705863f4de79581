"""Reports: SQL over what ingest stored."""
