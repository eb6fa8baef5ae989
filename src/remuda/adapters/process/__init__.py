"""VMs that are none: a directory and processes of this host, used once. Without isolation: for demonstrations."""
