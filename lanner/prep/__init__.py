"""Raw logs to datasets: sources, transforms, vocabularies and the engine that runs them."""
