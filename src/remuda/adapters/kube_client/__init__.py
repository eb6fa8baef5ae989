"""The API server over the network: the client, its wire on aiohttp, and where its address and credentials come from."""

from remuda.adapters.kube_client.client import ClientSettings, KubeClient
from remuda.adapters.kube_client.connection import Connection, Credential, Fixed, explicit
from remuda.adapters.kube_client.http_wire import HttpWire

__all__ = [
    "ClientSettings",
    "Connection",
    "Credential",
    "Fixed",
    "HttpWire",
    "KubeClient",
    "explicit",
]
