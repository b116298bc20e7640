"""What the control plane saw, one JSON object a line in DIR/journal.jsonl."""
import itertools
import json
import time
from pathlib import Path


class Journal:
    def __init__(self, directory):
        self._file = open(Path(directory) / 'journal.jsonl', 'a', buffering=1)
        self._streams = itertools.count(1)

    def new_stream(self):
        return next(self._streams)

    def write(self, event, **fields):
        self._file.write(json.dumps({'time': time.time(), 'event': event, **fields}) + '\n')


def read(directory, event=None, **match):
    """The records so far; only those of this event whose fields have these values."""
    path = Path(directory) / 'journal.jsonl'
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines(keepends=True):
        if not line.endswith('\n'):
            break  # being written
        record = json.loads(line)
        if event in (None, record['event']) and all(record.get(k) == v for k, v in match.items()):
            found.append(record)
    return found
