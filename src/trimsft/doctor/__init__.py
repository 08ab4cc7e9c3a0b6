"""What `trimsft doctor` finds out: what the commands need and whether it is here (`needs`), and which backends of the
head run here and are right (`backends`)."""
