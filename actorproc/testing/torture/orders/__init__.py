"""Orders of tortured procedures with steps, draws and judges of their own."""
