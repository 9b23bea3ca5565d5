"""The system calls a handler may not make, as a program for the kernel's seccomp filter.

The namespaces hide what a handler must not see. This takes away the ways to make new ones, to look into other
processes, to hold memory that no limit counts, and the parts of the kernel that had most of its holes.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import Final

_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_ANY_BIT: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in struct seccomp_data; the low half of the argument comes first on both machines."""
_NEW_NAMESPACE: Final = 0x7E020000
"""All CLONE_NEW* flags of this call."""
_FAMILIES: Final = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: the families that a network namespace isolates. AF_VSOCK reaches the host."""
_X32: Final = 0x40000000
"""The bit of the x32 numbering of calls on x86-64."""

# name: (number on x86-64, on aarch64), -1 where there is none
_FORBIDDEN: Final = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "chroot": (161, 51), "clock_settime": (227, 112),
    "create_module": (174, -1), "delete_module": (176, 106), "finit_module": (313, 273), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433), "get_mempolicy": (239, 236),
    "init_module": (175, 105), "ioperm": (173, -1), "iopl": (172, -1), "kcmp": (312, 272),
    "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219), "lookup_dcookie": (212, 18),
    "mbind": (237, 235), "migrate_pages": (256, 238), "mount": (165, 40), "mount_setattr": (442, 442),
    "move_mount": (429, 429), "move_pages": (279, 239), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "open_tree": (428, 428), "perf_event_open": (298, 241), "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "quotactl": (179, 60), "quotactl_fd": (443, 443), "reboot": (169, 142),
    "request_key": (249, 218), "set_mempolicy": (238, 237), "setdomainname": (171, 162), "sethostname": (170, 161),
    "setns": (308, 268), "settimeofday": (164, 170), "swapoff": (168, 225), "swapon": (167, 224),
    "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282), "uselib": (134, -1),
}  # fmt: skip
# As if the kernel had never heard of them: programs then go on without. clone3 hides its flags from a filter; what
# io_uring does no filter sees; the next hold memory that is in no process (vmsplice: whole huge pages, in pipes);
# inotify is counted for the whole user, io_setup for the whole machine.
_UNKNOWN: Final = {
    "clone3": (435, 435), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "semget": (64, 190),
    "msgget": (68, 186), "inotify_init": (253, -1), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    "vmsplice": (278, 75), "io_setup": (206, 0),
}  # fmt: skip
_CLONE: Final = (56, 220)
_SOCKET: Final = ((41, 198), (53, 199))
"""socket and socketpair."""
_MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def program() -> bytes:
    """The filter for this machine; empty if its calls are not known."""
    if platform.machine() not in _MACHINES:
        return b""
    column, architecture = _MACHINES[platform.machine()]
    steps = [
        *_unless(_ARCHITECTURE, architecture, errno.ENOSYS),  # 32-bit calls have other numbers
        _step(_LOAD, _NUMBER),
    ]
    if column == 0:
        steps += [_step(_AT_LEAST, _X32, 0, 1), _refuse(errno.ENOSYS)]
    for calls, answer in ((_FORBIDDEN, errno.EPERM), (_UNKNOWN, errno.ENOSYS)):
        for number in calls.values():
            if number[column] >= 0:
                steps += [_step(_EQUAL, number[column], 0, 1), _refuse(answer)]
    steps += _when(_CLONE[column], [_step(_ANY_BIT, _NEW_NAMESPACE, 0, 1), _refuse(errno.EPERM)])
    for call in _SOCKET:
        known = [_step(_EQUAL, family, len(_FAMILIES) - place, 0) for place, family in enumerate(_FAMILIES)]
        steps += _when(call[column], [*known, _refuse(errno.EAFNOSUPPORT)])
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _refuse(error: int) -> bytes:
    return _step(_RETURN, _ERRNO | error)


def _unless(offset: int, value: int, error: int) -> list[bytes]:
    return [_step(_LOAD, offset), _step(_EQUAL, value, 1, 0), _refuse(error)]


def _when(number: int, checks: list[bytes]) -> list[bytes]:
    """Check the first argument of this call; it is allowed if it passes the checks."""
    body = [_step(_LOAD, _FIRST_ARGUMENT), *checks, _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, number, 0, len(body)), *body]
