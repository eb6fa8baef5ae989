"""The process tree of ``remuda up``: control plane, dispatch, operator and agent of one machine, and who tends them."""
