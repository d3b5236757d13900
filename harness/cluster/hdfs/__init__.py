"""A real HDFS on this machine whose nodes can be killed, and what its requests are."""
