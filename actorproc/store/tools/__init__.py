"""Tools over whole stores: transfer, salvage and a check that runs in a process of its own."""
