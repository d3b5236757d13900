"""Structured Streaming as a system under test: a user's own query, judged by Spark's own promise.

``streaming_job`` is what a user writes, and ``query_definition`` what the others know of it. ``structured_streaming``
runs it on a cluster of its own, ``query_run`` starts it again after each failure, ``query_targets`` is what faults hit,
and ``committed_output`` is the checker. In ``driver/``, ``job_check`` says before the first trial whether a job can be
judged, and ``expected_rows`` what it must have committed. ``query_rpc`` is what the harness and its processes say to
each other. Only the modules in ``driver/`` import PySpark: they run in the driver, in the judge, and in the Python
workers of executors.
"""
