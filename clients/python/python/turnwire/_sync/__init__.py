# Written by tools/unasync.py from _async/__init__.py. Changes belong there.
"""The synchronous client."""
