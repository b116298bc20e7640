"""A name server that has one answer, and tells by it who answered: for cast.serve, in place of its own talk."""
import socket
import struct

# Whose answer it is: the DNS proxy of a pod, a server elsewhere, or the pod's own app that listens on 53.
ANSWERS = {'dns': ('198.18.0.1', '2001:db8:53::1'), 'peer': ('198.18.0.2', '2001:db8:53::2'),
           'app': ('198.18.0.3', '2001:db8:53::3')}
_A, _AAAA = 1, 28


def question(name, number=7, kind=_A):
    labels = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.'))
    return struct.pack('!6H', number, 0x100, 1, 0, 0, 0) + labels + struct.pack('!BHH', 0, kind, 1)


def answer(query, who):
    end = query.index(b'\0', 12) + 5
    kind = struct.unpack('!H', query[end - 4:end - 2])[0]
    v4, v6 = ANSWERS[who]
    address = {_A: lambda: socket.inet_aton(v4), _AAAA: lambda: socket.inet_pton(socket.AF_INET6, v6)}.get(kind)
    records = b''
    if address:
        data = address()
        records = struct.pack('!HHHIH', 0xc00c, kind, 1, 0, len(data)) + data
    return query[:2] + struct.pack('!5H', 0x8180, 1, bool(records), 0, 0) + query[12:end] + records


def cluster_answer(query, known):
    """Of a server that has these names, {name: address}, and denies all others."""
    end, at, labels = query.index(b'\0', 12) + 5, 12, []
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode())
        at += 1 + query[at]
    address = known.get('.'.join(labels).lower())
    kind = struct.unpack('!H', query[end - 4:end - 2])[0]
    data = socket.inet_aton(address) if address and kind == _A else b''
    records = struct.pack('!HHHIH', 0xc00c, kind, 1, 0, len(data)) + data if data else b''
    code = 0x8180 if address else 0x8183
    return query[:2] + struct.pack('!5H', code, 1, bool(data), 0, 0) + query[12:end] + records


def address_in(reply):
    """Of an answer to question()."""
    return socket.inet_ntoa(reply[-4:])


def over_tcp(connection, who, answer=answer):
    """One query after the other, as long as there are any."""
    while len(size := connection.recv(2, socket.MSG_WAITALL)) == 2:
        query = connection.recv(struct.unpack('!H', size)[0], socket.MSG_WAITALL)
        reply = answer(query, who)
        connection.sendall(struct.pack('!H', len(reply)) + reply)
