"""Four streaming jobs under test: two keep their promise, and two do not."""
