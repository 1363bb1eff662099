"""A proxy that loses answers."""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class LossyProxy:
    url: str
    lost: int = 0


@contextmanager
def lossy_proxy(server: str, seed: int) -> Iterator[LossyProxy]:
    """In front of a server: requests arrive, but every third answer, or so, is never seen."""
    rng = random.Random(seed)
    host, port = server.removeprefix("http://").split(":")
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = LossyProxy(f"http://127.0.0.1:{listener.getsockname()[1]}")
    open: list[socket.socket] = []

    def pump(source: socket.socket, target: socket.socket, may_lose: bool) -> None:
        try:
            while data := source.recv(65536):
                if may_lose and b"repeated" in data and rng.random() < 0.35:
                    proxy.lost += 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            upstream = socket.create_connection((host, int(port)))
            open.extend((client, upstream))
            for args in ((client, upstream, False), (upstream, client, True)):
                threading.Thread(target=pump, args=args, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield proxy
    finally:
        # `close` alone does not wake who waits in `accept`.
        listener.shutdown(socket.SHUT_RDWR)
        for end in (listener, *open):
            end.close()
