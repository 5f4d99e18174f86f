"""The explorer's pages, one folder each."""
