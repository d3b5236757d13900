"""What a trial leaves: history, verdict, record, and the run directory."""
