"""
A Mac that tests own: a real OpenSSH server on loopback, and behind it a stateful Mac made of files and small programs.

It needs root on a Debian: the server runs in a mount and a process namespace of its own, in a root folder of its own.
Every program there writes down the words that it was given before it does anything.
"""
