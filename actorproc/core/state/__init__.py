"""The engine state that decisions read and change."""
