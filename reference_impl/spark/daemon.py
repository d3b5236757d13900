"""A warm Python daemon for Spark's executors: imports what a subtask needs before any worker is forked.

Named by ``spark.python.daemon.module``. A worker forked from it starts in milliseconds instead of the second
or two that importing Arrow, pandas and the runtime takes, which counts in every recovery onto a fresh slot.
"""

from __future__ import annotations

import gc
import os

from barrier_tck.reference_impl.spark.import_path import prefer_installed

prefer_installed()  # before anything of PySpark is imported

# Worker processes are forked from this one: no thread may exist by then, so the linear algebra library, which
# starts a pool when it is imported, is kept from it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import encodings.idna  # noqa: F401 - connecting to a host imports it

import pandas  # noqa: F401 - Arrow imports it when it converts its first values
import psutil  # noqa: F401
import pyarrow
import pyarrow.parquet
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import barrier_tck.reference_impl.operators.arrow
import barrier_tck.reference_impl.operators.job
import barrier_tck.reference_impl.spark.subtask_process  # noqa: F401
from barrier_tck.reference_impl.spark.executor_memory import reserve

# What Arrow looks up once, at its first conversion.
pyarrow.array([0]).to_pylist()

# What is imported stays alive. A worker's garbage collector need not scan it, which would also copy its pages.
gc.collect()
gc.freeze()

if __name__ == "__main__":
    reserve()
    manager()
