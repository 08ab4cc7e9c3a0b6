"""Cost against size: how time and memory of each part of the package grow with what it is given."""
