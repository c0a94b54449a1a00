"""Becomes another program: drops to a user, ties its life to the supervisor's, then executes it.

Run by path with the standard library only, `launch.py PARENT_PID USER SIGNAL PROGRAM [ARGUMENT…]`.
A program of its own rather than a hook between fork and exec, which is unsafe beside threads.
"""

import ctypes
import os
import pwd
import sys

_PR_SET_PDEATHSIG = 1


def _become(user: str) -> None:
    entry = pwd.getpwnam(user)
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.environ["HOME"] = entry.pw_dir
    os.environ["USER"] = os.environ["LOGNAME"] = user


def _die_with_parent(parent_pid: int, signal_number: int) -> None:
    """Ask Linux for a signal when the parent dies; a change of user would clear the request."""
    if sys.platform != "linux":
        return
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:
        sys.exit("the supervisor died before its child started")


def main(arguments: list[str]) -> None:
    """Execute the program named in `arguments`; never returns."""
    parent_pid, user, signal_number, *command = arguments
    if user:
        _become(user)
    _die_with_parent(int(parent_pid), int(signal_number))
    os.execvp(command[0], command)  # noqa: S606 - the point: this process becomes the program


if __name__ == "__main__":
    main(sys.argv[1:])
