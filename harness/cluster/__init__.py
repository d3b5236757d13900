"""Spark clusters that the harness starts, may break at will, and takes away again.

`local` is a standalone cluster of real processes on this machine's loopback addresses, made as `config`
says; `session` opens a Spark session against it. Below them: `guard` is the small parent process that
outlives the harness just long enough to clean up after it and `guard_link` the pipe to it (`json_lines` is the
form of what passes such a pipe), `processes` finds what belongs to a cluster, `settings` is what every Spark
process is started with, `class_sharing` what lets it start in half the time, and `java` finds a Java that Spark
can use.
"""
