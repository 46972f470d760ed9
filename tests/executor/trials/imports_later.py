"""Reads what `later` stored as a main program, as another main program that imports it."""

import sys

import later

later.main(*sys.argv[1:3])
