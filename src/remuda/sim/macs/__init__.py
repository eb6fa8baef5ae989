"""Macs that are bootstrapped and updated by the real host operator: what is on their disks, and their agents."""
