"""The asynchronous client. `tools/unasync.py` writes `_sync` from it."""
