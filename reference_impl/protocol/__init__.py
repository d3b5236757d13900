"""The protocol core: state machines that take an event and return commands, and do no I/O."""
