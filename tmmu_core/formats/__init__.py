"""Readers and writers of graphs, packing instances and plans, one folder per tool."""
