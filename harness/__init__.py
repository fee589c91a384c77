"""The harness: everything that trains, judges and reports; run.py only calls it."""
