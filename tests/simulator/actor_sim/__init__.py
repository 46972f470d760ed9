"""The real actors on one thread: manager and supervisor as they are, and everything around them played.

`tests.simulator.core_sim.simulation` puts a shell of its own around the real core. Here the shell is the engine's: inbox and
batches, commit pipeline, outage, worker message handler, in-flight table, command executor, sweeper,
replies, the supervisor and its slots. What is played
is the world outside: the disk (`disk`), the workers and their channels (`workers`, `pool`), time (`clockwork`),
callers and an operator (`callers`), and the host, which dies (`host`). No thread is started: an actor handles a message
when the one seeded loop says so (`history`), so messages cross each other in many of the orders that threads could
bring about, and the same seed gives the same trace, byte for byte.

A history is drawn as those of the simulation are, leaves the same journal, and is judged by the same checker
(`tests.simulator.rules.invariants`); to that come the promises of `rules`, which only a real shell can break. `coverage_goals`
counts what happened.

Run ``python -m tests.simulator.actor_sim --seconds 60`` for a campaign, ``--replay SEED`` for one history.
"""
