"""The composition root: the only package that knows which adapter implements which port.

The container builds, `lifespan` opens and closes: constructors do no I/O. Adapters are imported when they are chosen,
and the store by the thread that writes to it, so that a start waits for nothing that it does not need.
"""
