"""What runs in the process of a candidate checkpoint storage."""
