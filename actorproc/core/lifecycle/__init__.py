"""The life of a procedure: submit, step records, signals, children, renewal, end, removal."""
