"""
An independent reader of pf.conf, and a judge of packets, for tests.

Written from pf.conf(5) and pfctl(8) of macOS. It shares no code with what writes our rules: two that agree by sharing a
mistake would prove nothing. It reads the part of the language that our rules and Apple's own pf.conf need, and refuses
the rest.
"""
