"""The tables of a store: their statements, how they are made, the roles that use them, and their vacuum."""
