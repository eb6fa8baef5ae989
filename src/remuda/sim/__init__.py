"""
The simulator: the real code on virtual time, in a world that fails on purpose.

One seed replays a whole run, byte for byte. It ships in the package: whoever doubts a guarantee can run it. Nothing
here sleeps, opens a socket or starts a thread.
"""
