"""The harness: runs plans in a world, records what happened and judges it.

Start reading at `harness.plan` (what is to be done), then `harness.suts.system` (who does it),
`harness.oracle.history` (what happened) and `harness.oracle.verdict` (what it means).
"""
