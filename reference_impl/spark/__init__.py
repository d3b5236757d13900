"""The runtime's ports on Spark: real processes, real sockets. The one part of the runtime that knows PySpark.

Read in this order: ``deployment`` (a job, from the driver), ``subtask_process`` (inside a Spark task),
``transport`` and ``mailbox`` (data), ``coordinator_service`` and ``control_link`` (control),
``handshake`` and ``control_wire`` (bytes).
"""
