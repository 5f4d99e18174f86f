"""The wheel as a stranger meets it: built, installed beside nothing of ours, and tried."""
