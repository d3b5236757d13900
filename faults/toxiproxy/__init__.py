"""Disturbing TCP connections with Toxiproxy: a client, an embedded server, and which server to use."""
