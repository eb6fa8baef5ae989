"""
The RunnerPool operator: replicas, autoscaling, capped rolls, safe drains, reaping.

``decide`` holds the policy, pure; the rest carries it out. It owns no state: everything is derived from listings.
"""
