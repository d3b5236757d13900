"""A warm Python daemon for Spark's executors: imports what a subtask needs before any worker is forked.

Named by ``spark.python.daemon.module``. A worker forked from it starts in milliseconds instead of the second or
so that importing Arrow and the runtime takes, which counts in every recovery onto a fresh slot.
"""

from __future__ import annotations

import os

# Worker processes are forked from this one: no thread may exist by then, so the linear algebra library, which
# starts a pool when it is imported, is told not to.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil  # noqa: E402, F401
import pyarrow.compute  # noqa: E402, F401
import pyarrow.parquet  # noqa: E402, F401
import pyspark.worker  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

import reference_impl.operators.arrow  # noqa: E402, F401
import reference_impl.operators.job  # noqa: E402, F401
import reference_impl.spark.subtask_process  # noqa: E402, F401

if __name__ == "__main__":
    manager()
