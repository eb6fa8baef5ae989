"""
A small but real controller keeps N objects: the smallest thing that has every hard problem of the large ones.

A *herd* says how many *horses* it has and which brand they carry; the controller makes and replaces horses. *Riders*
take horses and must never lose one under them. All three are ConfigMaps, so that no definition is needed.
"""
