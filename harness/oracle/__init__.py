"""The oracle: history in, verdict out. Shares no code with what it judges."""
