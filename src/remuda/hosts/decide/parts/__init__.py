"""The worries of a host's state, one file each. ``remuda.hosts.parts`` has them in order."""
