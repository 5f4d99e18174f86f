"""The Python API: functions and the values that they return. ``docs/how-to/python.md`` shows them."""
