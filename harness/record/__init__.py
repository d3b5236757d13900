"""What a trial leaves behind: its history, verdict and record, and the run directory."""
