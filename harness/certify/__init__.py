"""Certification of what third parties bring, by clause and level: an engine, and a folder for each kind of it."""
