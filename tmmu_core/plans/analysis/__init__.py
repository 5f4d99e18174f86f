"""Analyses of finished plans, one module each. They read plans only and do not import each other."""
