"""Selection: directories, ids and filters that commands share."""
