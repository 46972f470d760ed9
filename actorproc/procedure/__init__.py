"""Procedures: the classes that users write, and their conversion to bytes and back.

Authoring: `procedure` (class `Procedure`), `saga`, `machine`, `function`, `status`, `policies`, `context`.
Engine side: `codec` (values to bytes), `hints` and `fields` (what a class declares), `state` (a procedure's state
to bytes), `runtime` (one step run, turned into an `Outcome`), `registry` (names to classes), `shipping` (classes to
workers), `signing` (the opt-in pickle codec).

Nothing here knows of processes, stores or actors. The public names are those of `actorproc`.
"""
