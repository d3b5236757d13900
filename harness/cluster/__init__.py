"""Spark clusters that the harness starts, may break at will, and removes again.

`local_cluster` is a standalone cluster of real processes on this machine's loopback addresses, configured by
`cluster_config`; `spark_session` opens a Spark session against it. Below them, `guard` is the small parent process that
outlives the harness just long enough to clean up after it. `guard_link` is the pipe to it, and `json_lines` the format
of what passes through such a pipe. `process_identity` finds what belongs to a cluster, `settings` holds what every
Spark process is started with, `java` finds a Java that Spark can use, and `installation` says where Spark is. With
`class_archive` a JVM starts in half the time: `class_sharing` keeps the archive, and `class_archive_maker` is the
process that makes it.
"""
