"""One question a file; each exports EXPERIMENT."""
