"""The JSON API: a table of operations, their handlers, and the document that describes them."""
