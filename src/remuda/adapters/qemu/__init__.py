"""QEMU guests on Linux hosts: the driver of the port ``Vms``, and the process that stands beside each guest."""
