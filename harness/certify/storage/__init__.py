"""Certification of checkpoint storages."""
