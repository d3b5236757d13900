"""Certification of Spark's state stores: any ``StateStoreProvider``, driven by version in a JVM of our own."""
