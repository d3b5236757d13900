"""Spark clusters that the harness starts, may break at will, and takes away again.

`local_cluster` is a standalone cluster of real processes on this machine's loopback addresses, made as
`cluster_config` says; `spark_session` opens a Spark session against it. Below them: `guard` is the small parent
process that outlives the harness just long enough to clean up after it and `guard_link` the pipe to it
(`json_lines` is the form of what passes such a pipe), `process_identity` finds what belongs to a cluster, `settings`
is what every Spark process is started with, `java` finds a Java that Spark can use and `installation` says where
Spark is. `class_archive` is what lets a JVM start in half the time: `class_sharing` keeps it and
`class_archive_maker` is the process that makes it.
"""
