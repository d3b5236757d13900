"""Reports: records in, pages out. Reads records, verdicts, clauses and the fault vocabulary, nothing else.

`write.write_reports` and `summary.print_summary` are the entry points; start reading at `loading`.
"""
