"""The processor time of a command counts what it started, also what still runs."""

from __future__ import annotations

import subprocess
import sys
import time

from barrier_tck.harness.support.processor_time import processor_seconds

COUNTED_S = 0.02
"""What two readings may lack: the kernel counts in hundredths of a second, and they are added as fractions."""
WORKS = "import time, sys\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True)\nsys.stdin.read()"


def test_own_work_and_that_of_children_counts_while_they_run_and_afterwards() -> None:
    began = processor_seconds()
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    own = processor_seconds()
    assert own - began >= 0.2 - COUNTED_S
    child = subprocess.Popen([sys.executable, "-c", WORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        assert processor_seconds() - own >= 0.5 - COUNTED_S, "it still runs"
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
        assert processor_seconds() - own >= 0.5 - COUNTED_S, "it has ended"
