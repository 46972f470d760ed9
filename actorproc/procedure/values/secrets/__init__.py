"""Values that are kept and never shown: their type, and the hints that name them."""
