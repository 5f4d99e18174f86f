"""The search for the cheapest changes that fit."""
