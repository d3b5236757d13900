"""Workloads: input, job, sequential model and final reads, one file each."""
