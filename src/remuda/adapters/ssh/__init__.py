"""The shell of a Mac host, over SSH: only what is given is used, nothing of the user's own SSH set-up is read."""

from remuda.adapters.ssh.shells import SshSettings, SshShells

__all__ = ["SshSettings", "SshShells"]
