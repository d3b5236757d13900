"""Durable storage: file systems, checkpoint storage and checkpoint metadata."""
