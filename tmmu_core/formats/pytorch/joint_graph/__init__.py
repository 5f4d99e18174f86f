"""Traced modules: AOTAutograd's joint graph as a graph."""
