"""The server's sockets send what they have at once."""

from __future__ import annotations

import os
import socket

import psutil


def send_at_once() -> None:
    """Turn off Nagle's algorithm for every connection that this process will accept.

    An answer is two writes, head and body, and a browser acknowledges the first only after 40 ms:
    with the algorithm on, each answer would take those. asyncio turns it off by itself, but only
    on sockets that name their protocol, which Streamlit's does not. Accepted ones inherit it.
    """
    for connection in psutil.Process().net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.fd >= 0:
            with socket.socket(fileno=os.dup(connection.fd)) as listening:
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
