"""Answers of the server do not wait for an acknowledgement."""

from __future__ import annotations

import socket

from app.live.sockets import send_at_once


def test_accepted_connections_send_at_once() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        send_at_once()
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert listening.fileno() >= 0
