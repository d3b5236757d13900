"""Spark clusters that the harness starts, may break at will, and takes away again.

`local` is a standalone cluster of real processes on this machine's loopback addresses, `session` opens a
Spark session against it, `guard` is the small parent process that outlives the harness just long enough
to clean up after it, and `java` finds a Java that Spark can use.
"""
