"""The public verbs, one job per file; `actorproc.api.manager` puts them together."""
