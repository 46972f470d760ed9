"""The command line ``actorproc``. Every command imports what it needs when it runs."""
