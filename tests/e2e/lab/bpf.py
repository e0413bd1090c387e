"""The kernel's BPF objects: those of a process, and which of them are there."""

import ctypes
import errno
import os
import pathlib
import struct
from collections import namedtuple

# bpf_get_next_id and the others return -errno.
_libbpf = ctypes.CDLL("libbpf.so.1")
# struct bpf_prog_info up to its name.
PROGRAM_INFO = struct.Struct("=IIQIIQQQIIQ16s")
MAPS_OF_A_PROGRAM = 64

Program = namedtuple("Program", "number name maps")
# kind: "program", "map" or "link".
Object = namedtuple("Object", "kind number name")


def _descriptor(kind, number):
    """A descriptor of an object; None: it is not there."""
    call = {"program": "bpf_prog_get_fd_by_id", "map": "bpf_map_get_fd_by_id", "link": "bpf_link_get_fd_by_id"}[kind]
    descriptor = getattr(_libbpf, call)(ctypes.c_uint32(number))
    if descriptor >= 0:
        return descriptor
    if descriptor == -errno.ENOENT:
        return None
    raise OSError(-descriptor, f"{call} {number}")


def exists(found):
    descriptor = _descriptor(found.kind, found.number)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def _program(number):
    """A program with the numbers of its maps, or None."""
    descriptor = _descriptor("program", number)
    if descriptor is None:
        return None
    maps = (ctypes.c_uint32 * MAPS_OF_A_PROGRAM)()
    head = PROGRAM_INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, MAPS_OF_A_PROGRAM, ctypes.addressof(maps), b"")
    info = ctypes.create_string_buffer(head, PROGRAM_INFO.size)
    length = ctypes.c_uint32(PROGRAM_INFO.size)
    try:
        failed = _libbpf.bpf_obj_get_info_by_fd(descriptor, info, ctypes.byref(length))
    finally:
        os.close(descriptor)
    if failed:
        raise OSError(-failed, f"bpf_obj_get_info_by_fd of program {number}")
    fields = PROGRAM_INFO.unpack(info.raw)
    return Program(number, fields[-1].rstrip(b"\0").decode(), set(maps[: fields[-3]]))


def _programs():
    """All programs of the machine."""
    number = ctypes.c_uint32(0)
    while _libbpf.bpf_prog_get_next_id(number, ctypes.byref(number)) == 0:
        if (program := _program(number.value)) is not None:
            yield program


def _described(process):
    """What the kernel tells of each open descriptor of a process, as {field: value}."""
    for path in pathlib.Path(f"/proc/{process}/fdinfo").iterdir():
        try:
            lines = path.read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        yield dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def objects(process):
    """The links, programs and maps of a process: what it has open, and what belongs to that.

    A program that only a socket keeps has no descriptor, but a map of another one.
    """
    links, programs, maps = set(), set(), set()
    for fields in _described(process):
        if "link_id" in fields:
            links.add(Object("link", int(fields["link_id"]), fields["link_type"]))
        if "prog_id" in fields:
            programs.add(int(fields["prog_id"]))
        if "map_id" in fields:
            maps.add(int(fields["map_id"]))
    every, known = list(_programs()), None
    while known != maps:
        known = maps
        ours = [one for one in every if one.number in programs or one.maps & known]
        maps = known.union(*(one.maps for one in ours))
    found = links | {Object("program", one.number, one.name) for one in ours}
    return found | {Object("map", number, "") for number in maps}
