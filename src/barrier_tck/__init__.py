"""barrier-tck: fault-injection tests and a conformance suite for barrier snapshots.

The five packages below this one are the five folders at the top of the repository (decision 0017).
"""
