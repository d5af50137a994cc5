"""Failures that are nobody's input."""


class EngineFailedError(RuntimeError):
    """The engine ended by itself and it was nobody's input; its traceback is on stderr."""
