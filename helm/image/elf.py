"""What a program needs to start, as readelf says it for any machine."""
import re
import subprocess

NEEDED = re.compile(r'\(NEEDED\).*\[(.*)\]')
INTERPRETER = re.compile(r'program interpreter: (.*)\]')


def libraries(files, find):
    """(interpreter's path, {name: file} of all shared libraries, also of those that libraries need)"""
    interpreter, found, wanted = None, {}, list(files)
    while wanted:
        text = subprocess.run(['readelf', '-dlW', wanted.pop()], check=True, capture_output=True, text=True).stdout
        for name in NEEDED.findall(text):
            if name not in found:
                found[name] = find(name)
                wanted.append(found[name])
        for interpreter in INTERPRETER.findall(text):
            pass
    return interpreter, found
