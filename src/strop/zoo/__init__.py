"""Factories of torch modules that strop's own models are made by; a user's own factory looks the same."""
