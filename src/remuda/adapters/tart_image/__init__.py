"""
Tart's image format: a VM as layers in an OCI registry, and back into a folder.

Nothing here knows a registry's protocol (that is ``adapters.registry``) nor the ``tart`` program. What is read may have
been made by anybody: sizes are bounded before memory or disk is spent, and no name in an image chooses a file.
"""
