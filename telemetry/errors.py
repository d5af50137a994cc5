"""What can go wrong with a database, for people."""


class StoreError(Exception):
    """A database that cannot be used; one line: what is wrong, and what to do."""


def closed() -> StoreError:
    return StoreError("the database is closed: open it again")
