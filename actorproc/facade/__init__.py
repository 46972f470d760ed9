"""The public verbs, one job per file; `actorproc.manager` puts them together."""
