"""Certification of Spark's own state stores: any ``StateStoreProvider``, driven by version in a JVM of our own."""
