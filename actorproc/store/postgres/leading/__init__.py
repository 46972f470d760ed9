"""The right to write a store: who has it, how it is kept, and how it passes to the next owner."""
