"""The host operator: Mac hosts are found, bootstrapped over SSH, kept from drifting and given back."""
