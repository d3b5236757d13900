"""What a user writes (the job API) and the operators that run it, on rows and on Arrow batches."""
