"""Keyed state: the backend seam that third parties implement, and the backends we ship."""
