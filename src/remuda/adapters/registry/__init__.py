"""
A client of OCI registries: manifests and blobs, fetched and stored.

It knows the distribution protocol and nothing of what is in an image. Every answer is bounded, every byte is checked
against its digest, and no credential goes to another host than the one it is for.
"""
