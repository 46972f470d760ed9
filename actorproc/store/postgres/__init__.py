"""The store in a PostgreSQL database: the rows of `actorproc.store.rows`, one table for each kind."""
