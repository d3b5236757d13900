"""Reports: records in, pages out. Reads records, verdicts, clauses and the fault vocabulary, nothing else.

`write.write_reports` and `summary.print_summary` are the doors; start reading at `loading`.
"""
