"""The yardstick: how many real bugs of released versions of Spark are found by drawn trials that are told nothing."""
