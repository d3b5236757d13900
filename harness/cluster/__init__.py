"""Spark clusters that the harness starts, may break at will, and removes again.

`cluster` is what every kind of cluster shares; `local_cluster` is the kind whose workers are processes on loopback
addresses of this machine. `cluster_config` holds their configurations. `spark_session` opens a Spark session
against a cluster, in this process or in another one that was given its `session_config`. Below them, `guard` is the
small parent process that outlives the harness just long enough to clean up after it. `parent_death_watch` is the pipe
to it, and `json_lines` the format of what passes through such a pipe. `process_identity` finds what belongs to a
cluster, `settings` holds what every Spark process is started with, `java` finds a Java that Spark can use, and
`installation` says where Spark is. A `signalled_process` is one that faults hit; at a `rendezvous`, processes that
Spark starts stand still. With `class_archive` a JVM starts in half the time: `class_sharing` keeps the
archive, and `class_archive_maker` is the process that makes it.
"""
