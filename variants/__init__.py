"""One token mixer a file; each exports SPEC."""
