"""Names of models that need no path. No torch."""

DEFAULT_MODEL = "smollm2-135m"
