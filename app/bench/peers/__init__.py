"""One stand-alone script for each peer; it runs under that peer's own interpreter."""
