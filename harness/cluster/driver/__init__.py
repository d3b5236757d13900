"""Drivers in processes of their own: start one, speak with it, stop it at a point, and find nothing left of it.

``DriverProcess`` is the harness's side, ``Peer`` the wire that both sides use. What a driver can do is an interface of
the system under test: a class whose methods have type hints.
"""
