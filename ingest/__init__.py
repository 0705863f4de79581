"""From log files to rows in a database, and the command line."""
