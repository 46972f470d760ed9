"""Parts of the engine state: each owns the fields of one concern, and its module alone assigns them."""
