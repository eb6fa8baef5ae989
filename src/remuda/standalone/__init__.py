"""
The one-machine control plane: an object store that speaks the part of the Kubernetes API that we use.

Served over HTTPS it is the embedded default of one machine; in memory, without HTTP, it is the simulator's world. One
contract suite runs against it and against a real kube-apiserver: where they differ, this package is wrong.
"""
