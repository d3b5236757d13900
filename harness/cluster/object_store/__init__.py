"""A real object store on this machine that can be killed, and what stands before it to throttle it."""
