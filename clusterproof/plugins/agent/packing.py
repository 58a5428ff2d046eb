"""Packs a program as text: compressed, using characters that shells and Systems Manager leave unchanged."""

from __future__ import annotations

import bz2
import struct

ARGUMENT = 130_000  # characters: Linux takes no argument or variable of more than 131,071
QUOTED = "/bin/sh -c '"  # how a command that is a script in single quotes begins

# Four bytes become five printable characters, excluding those special to a shell, a template or JSON.
LEFT_OUT = tuple(map(ord, "$&'<\\`{"))
ALPHABET = bytes(code for code in range(ord("#"), 127) if code not in LEFT_OUT)
DIGITS = bytes.maketrans(ALPHABET, bytes(range(85)))
PLACES = tuple(85**exponent for exponent in (4, 3, 2, 1, 0))

# Unpacks on a node, using `bz2` and `struct`: Python without quotes, because it is inside a shell's quotes.
UNPACKED = (
    f"a=bytes(c for c in range(35,127)if c not in{LEFT_OUT});"
    "t={text}.translate(bytes.maketrans(a,bytes(range(85))));"
    "t=struct.pack(chr(62)+str(len(t)//5)+chr(73),"
    "*[(((a*85+b)*85+c)*85+d)*85+e for a,b,c,d,e in zip(*[iter(t)]*5)]);"
    "t=bz2.decompress(t)"
)


def script_of(command: str) -> str:
    """The script to feed to a shell on standard input, if the command is too long for an argument."""
    if len(command) <= ARGUMENT or not command.startswith(QUOTED):
        return command
    return command[len(QUOTED) : -1]


def packed(text: str) -> str:
    """Pack a program."""
    compressed = bz2.compress(text.encode())  # of a whole preflight smaller than lzma's
    compressed += bytes(-len(compressed) % 4)  # ignored when it is unpacked
    numbers = struct.unpack(f">{len(compressed) // 4}I", compressed)
    return bytes(ALPHABET[word // power % 85] for word in numbers for power in PLACES).decode()


def text_of(program: str) -> str:
    """Unpack a packed program. Raises ValueError if it is not complete."""
    digits = iter(program.encode().translate(DIGITS))
    numbers = [sum(digit * power for digit, power in zip(five, PLACES)) for five in zip(*[digits] * 5)]
    return bz2.decompress(struct.pack(f">{len(numbers)}I", *numbers)).decode()
