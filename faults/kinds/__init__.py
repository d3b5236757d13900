"""The faults, one file each: value, contract, traits, injector, how it is drawn, shrunk, described and shown."""
