"""Benchmarks. The numbers of each come from one run; what is compared is measured side by side."""
