"""Procedures: the classes that users write, and their conversion to bytes and back.

For users: `authoring/` has the base classes, `Status` and `Context`; `declaring/` checks classes when they are made.
For the engine: `values/` turns values into bytes and back, and `encoding/` does so with states, outputs and errors.
`shipping/` sends classes to workers; `runtime/` runs one step, and finds classes by their names.

Nothing here knows of processes, stores or actors. The public names are those of `actorproc`.
"""
