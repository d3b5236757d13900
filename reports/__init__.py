"""Reports: records in, pages out. Reads records and the fault vocabulary, nothing else."""
