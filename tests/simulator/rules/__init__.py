"""Rules of the checker: the promises of the engine, each as a function."""
