"""Small systems and parts from outside, which plug into the project's seams."""
