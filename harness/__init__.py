"""The harness: runs plans in a world, records what happened and judges it.

Start reading at `harness.plan.trial_plan` (what is to be done), then `harness.system.system_under_test` (who does it),
`barrier_tck.harness.record.history` (what happened) and `barrier_tck.harness.record.verdict` (what it means).
"""
