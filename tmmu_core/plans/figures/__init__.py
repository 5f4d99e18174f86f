"""What is counted of a plan, and written into it: what is alive when, its storages, its metrics and totals."""
