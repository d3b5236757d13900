"""The shell: carries out the protocol's commands through ports that a world supplies."""
