"""Texts of the interface, the report and the command line: numbers, HTML, glossary and errors."""
