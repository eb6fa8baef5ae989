"""
The node agent: Pods become VMs, one job each, and nothing hangs a host.

``decide`` holds the policy, pure; the rest carries it out. What it must not forget is in a durable record per Pod UID.
"""
