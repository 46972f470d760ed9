"""Files of an LMDB store: the data file, its lock table, blobs, and stores open in this process."""
