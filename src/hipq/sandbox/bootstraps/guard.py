"""Without a sandbox: stays above an interpreter and everything it starts, so that nothing of it is left over.

Runs under any Python 3.8 or later, alone. Its arguments: the process it belongs to, a folder, then the command.
Processes that lose their parent become its children, wherever they hid. It ends them all when the interpreter ends,
when it is told to (SIGTERM), and when the process it belongs to is gone, however that ended; and removes the folder.
"""

import ctypes
import os
import shutil
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
OURS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def main() -> None:
    parent, folder, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    signal.pthread_sigmask(signal.SIG_BLOCK, OURS)
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, OURS)
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        os.execv(command[0], command)
    os.closerange(0, 65536)  # otherwise the ends of its pipes would never be seen
    code = _wait(child)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(code)


def _wait(child: int) -> int:
    while True:
        if signal.sigwait(OURS) != signal.SIGCHLD:
            _end_all()
            return 137
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 1
            if pid == child:
                _end_all()
                code = os.waitstatus_to_exitcode(status) if hasattr(os, "waitstatus_to_exitcode") else status >> 8
                return code if code >= 0 else 128 - code
            if pid == 0:
                break


def _end_all() -> None:
    """Kill the children, then those that became children by that, and so on."""
    while True:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children") as file:
                for pid in file.read().split():
                    try:
                        os.kill(int(pid), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


main()
