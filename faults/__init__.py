"""Faults as data: a vocabulary, triggers and schedules, and the injectors that carry them out."""
