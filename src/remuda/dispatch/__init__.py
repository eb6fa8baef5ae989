"""Dispatch: jobs in, claims, job configs out. Decisions are in ``decide``; the rest carries them out."""
