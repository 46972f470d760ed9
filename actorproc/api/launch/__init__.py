"""Launchers: what a program elsewhere is told to run, and other engines that start hosts. No step passes them."""
