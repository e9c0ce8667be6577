"""Values: frozen, typed, units in their names. No I/O, no behaviour beyond identity."""
