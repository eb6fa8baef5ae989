"""
A fleet to run controllers against: hosts without VMs, and a dispatch without a forge.

Everything here goes over the ports alone, so that the hosts also serve on a real API server.
"""
