"""Torture of several processes on one database: candidates for the lead, hosts, and the links between all."""
