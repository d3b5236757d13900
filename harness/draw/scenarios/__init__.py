"""What plans are made for: each module is one scenario (``harness/draw/scenario.py``)."""
