"""
``remuda top``: a living screen of a fleet.

What is shown is decided in ``decide``, without a terminal; ``reading`` keeps looking at the fleet; ``app`` draws and
takes keys, with textual.
"""
