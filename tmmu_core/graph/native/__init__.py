"""The native graph file: JSON or CBOR, read and written."""
