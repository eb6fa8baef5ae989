"""
What every controller is built from: reflector, work queue, leader election, event recorder, task runner.

All of it talks to the ports alone and takes its clock, ids and settings as arguments, so that production and the
simulator run the same code.
"""
