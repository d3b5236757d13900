"""The faults, one file each: value, contract, traits, injector, how it is drawn, shrunk, told and shown."""
