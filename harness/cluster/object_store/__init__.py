"""A real object store on this machine that can be killed, and what its requests are."""
