"""Stores: durable rows of procedures, steps and locks."""
