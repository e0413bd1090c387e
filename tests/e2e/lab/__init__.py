"""The laboratory: namespaces, the daemon under test, frames, captures and traffic.

Used by the end-to-end tests and by `make demo`. Everything waits on events with a deadline; nothing sleeps.
"""
