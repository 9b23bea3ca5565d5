"""The first program in a context: gives up what the handler must not have, then becomes its interpreter.

Runs under any Python 3.8 or later, alone: nothing of hipq is there. Its argument is JSON:

    channel   descriptors to become 3, 4 and 5: what is asked, payloads, what is answered; or none
    variables the descriptor of a file with more of the environment, as JSON; or -1
    proxy     the port to listen on, and the descriptor by which that socket is handed to the daemon; or null
    user      a user id to become, or null
    limits    name of a resource -> its limit
    first     the id of the sandbox's first process, which gets these limits, too; or 0
    command   what to run

"""

import errno
import fcntl
import json
import os
import resource
import sys

PR_CAPBSET_DROP = 24
CAPABILITY_VERSION = 0x20080522


def main() -> None:
    plan = json.loads(sys.argv[1])
    environment = dict(os.environ, **_variables(plan["variables"]))
    if plan["proxy"]:
        _hand_over(*plan["proxy"])
    _arrange(plan["channel"])
    if plan["first"]:  # a handler of the same user can write into its memory, and so have it do whatever it likes
        for name, most in plan["limits"].items():
            _limit(getattr(resource, "RLIMIT_" + name), most, plan["first"])
    if plan["user"] is not None:
        _give_up_rights()
        os.setgroups([])
        os.setresgid(plan["user"], plan["user"], plan["user"])
        os.setresuid(plan["user"], plan["user"], plan["user"])  # this also drops the remaining capabilities
    for name, most in plan["limits"].items():
        _limit(getattr(resource, "RLIMIT_" + name), most)
    os.execve(plan["command"][0], plan["command"], environment)


def _variables(number: int) -> "dict[str, str]":
    if number < 0:
        return {}
    with open(number, encoding="utf-8") as file:
        return dict(json.load(file))


def _hand_over(port: int, number: int) -> None:
    """Listen where only this sandbox can connect to, for the daemon."""
    import socket

    with socket.socket() as listener, socket.socket(fileno=number) as link:
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        socket.send_fds(link, [b"."], [listener.fileno()])


def _give_up_rights() -> None:
    """Drop all capabilities for good: no program it starts can get one, by its own file or by inheritance."""
    import ctypes  # imported late because it takes a moment, and only root needs it

    libc = ctypes.CDLL(None, use_errno=True)
    for right in range(64):
        # EINVAL: there is no such capability
        if libc.prctl(PR_CAPBSET_DROP, right, 0, 0, 0) and ctypes.get_errno() != errno.EINVAL:
            raise OSError(ctypes.get_errno(), "cannot give up a capability")
    now = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: of the first 32, then of the others
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    if libc.capget(header, now):
        raise OSError(ctypes.get_errno(), "cannot see its capabilities")
    now[2] = now[5] = 0
    if libc.capset(header, now):
        raise OSError(ctypes.get_errno(), "cannot give up inheritable capabilities")


def _arrange(channel: "list[int]") -> None:
    # Duplicate to high numbers first, because each could have a number that another needs.
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD, 10) for number in channel]
    for place, number in enumerate(moved, 3):
        os.dup2(number, place)
    os.closerange(3 + len(moved), 65536)  # descriptors that the daemon or the sandbox left open are not for the handler


def _limit(what: int, most: int, process: int = 0) -> None:
    hard = resource.prlimit(process, what)[1]
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)  # the hard limit cannot be raised
    resource.prlimit(process, what, (most, most))


main()
