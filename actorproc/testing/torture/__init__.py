"""Real processes, real kills: random procedures under random faults, judged from outside.

    actorproc torture --minutes 10 --seed 1

An *episode* is drawn from one number (`plan`): procedures to submit, and several *lives* of a host with the faults of
each. The `episode_runner` starts the host as a child process, kills and stops it and its workers;
the host itself breaks
its own store and clock through their seams (`injection`). All that happens is written down in the journal of
`actorproc.testing.journal`, beside the engine. The `oracle` judges the journal, the store and what the procedures
left in the world, as one pure function; `coverage` counts which fault hit the engine in which phase.

A seed fixes the trials and not the scheduler of the operating system. A replayed episode has the same procedures and
the same faults, at moments that are slightly different.
"""
