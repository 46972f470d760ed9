"""The classes that users write procedures with."""
