"""The processes with PySpark in them: driver, judge, and what runs in the Python workers of executors."""
