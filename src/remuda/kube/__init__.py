"""Kubernetes as it spells itself: typed resources, selectors, patches, CRDs. Pure; untyped dicts stop here."""
