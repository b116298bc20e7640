"""What is in a process's memory, and in which of its mappings."""
import base64
import re
from pathlib import Path

from cryptography.hazmat.primitives import serialization

WINDOW = 24  # bytes; a piece of a secret is worth something, too
UNREADABLE = '[vvar]', '[vvar_vclock]', '[vsyscall]'
LOCKED = {'lo', 'dd', 'wf'}  # mlock, MADV_DONTDUMP, MADV_WIPEONFORK


def mappings(pid):
    """(start, end, name, flags) of all that can be read."""
    at = None
    for line in Path(f'/proc/{pid}/smaps').read_text().splitlines():
        if found := re.match(r'([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)$', line):
            at = int(found[1], 16), int(found[2], 16), found[4], found[3]
        elif line.startswith('VmFlags:') and at[3].startswith('r') and at[2] not in UNREADABLE:
            yield *at[:3], set(line.split()[1:])


def memory(pid):
    """(name, flags, contents), mapping by mapping."""
    with open(f'/proc/{pid}/mem', 'rb', buffering=0) as mem:
        for start, end, name, flags in mappings(pid):
            mem.seek(start)
            yield name, flags, mem.read(end - start)


def windows(what, text):
    return {f'{what}[{i}]': text[i:i + WINDOW] for i in range(0, len(text) - WINDOW + 1, WINDOW // 2)}


def key(pem):
    """A key as text (its private part), and as the number that it is, in both orders of bytes."""
    number = serialization.load_pem_private_key(pem.encode(), None).private_numbers().private_value.to_bytes(32, 'big')
    text = ''.join(pem.split('\n')[1:-2])
    at = base64.b64decode(text).index(number)
    return {**windows('key', text[(at + 2) // 3 * 4:(at + 32) // 3 * 4].encode()), 'number': number, 'limbs': number[::-1]}


def token(jwt):
    """Its signature is the token's alone."""
    return windows('token', jwt.rpartition('.')[2].encode())


def found_in(pids, secrets):
    """(what, pid, mapping, is it locked) of each secret's first place in a mapping; lines may be broken by newlines."""
    return {(what, pid, name, flags >= LOCKED) for pid in pids for name, flags, content in memory(pid)
            for content in [content.replace(b'\n', b'')] for what, secret in secrets.items() if secret in content}
