"""Reports: records in, pages out. Reads records, verdicts, clauses and the fault vocabulary, nothing else.

`write_reports` and `print_summary` are the doors; start reading at `barrier_tck.reports.loading`.
"""

from __future__ import annotations

from barrier_tck.reports.loading import Run, RunDirectoryError, load_run
from barrier_tck.reports.summary import print_summary
from barrier_tck.reports.write import ReportPaths, write_reports

__all__ = ["ReportPaths", "Run", "RunDirectoryError", "load_run", "print_summary", "write_reports"]
