"""Tables, and the formats they are written in."""
