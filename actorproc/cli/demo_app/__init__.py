"""`actorproc demo`: create a partitioned table on real input while processes are killed.

The table ``symbols`` holds every class and function defined in a tree of Python sources, split into
regions. Creating it changes several things that must agree: the region files, the table's manifest and a
row in a catalog. That is a procedure::

    CreateTable                    holds the write lock of the table
      ├─ CreateRegion × N          parses its share of the files, a batch per step
      ├─ write the manifest        once all regions are there
      └─ register in the catalog   from here on the table exists

    procedures.py   the two procedures, with their undo
    tables.py       the files a table consists of, written so that writing twice changes nothing
    service.py      the process that hosts the manager, and that gets killed
    controller.py   starts it, kills it and its workers, starts it again
    journal.py      what the steps say about themselves, in a file of their own
    verify.py       the same answer computed directly, and the comparison
    main.py         the story told on the terminal
"""
