"""Scaleway's Apple silicon as a service: rented Macs, behind ``remuda.ports.machines``."""
