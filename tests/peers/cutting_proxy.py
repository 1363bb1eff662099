"""A proxy that cuts an answer in the middle of what it says, however it comes in pieces."""

import socket

from turnwire_server import Proxy


class CuttingProxy(Proxy):
    """Cuts right behind these words."""

    def __init__(self, address: str, words: str) -> None:
        self.words = words.encode()
        super().__init__(address)

    def down(self, client: socket.socket, upstream: socket.socket) -> None:
        seen = b""
        try:
            while data := upstream.recv(65536):
                seen, sent = seen + data, len(seen)
                if (at := seen.find(self.words)) >= 0:
                    client.sendall(seen[sent : at + len(self.words)])
                    self.cuts += 1
                    break
                client.sendall(data)
        except OSError:
            pass
        for end in (client, upstream):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
