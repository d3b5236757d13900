"""The code that runs in the process of a candidate backend."""
