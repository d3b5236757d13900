"""The ports on Spark: barrier-stage tasks, TCP channels, the coordinator service on the driver."""
