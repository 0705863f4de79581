"""The catalogue of failures, the matcher that finds them, and the masking of secrets."""
