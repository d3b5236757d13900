"""The simulated world: the runtime's ports in virtual time, seeded, with a trace."""
