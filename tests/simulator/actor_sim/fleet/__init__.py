"""Worker hosts in the actor simulation: agents and the leader's pool as they are, over links that are played.

The agent (`HostAgent`, `HostWorkers`, `HeldWork`), the admission and the pool of the leader (`HostedPool`), and both ends
of each link (`LinkEnd`) are the engine's. Played are connections, which break, lose what is under way and cannot be
made for a while (`links`), time, threads, and the processes of a machine (`machines`).
"""
