"""Workloads, one file each: the input, the job graph, and what a run without faults must give."""
