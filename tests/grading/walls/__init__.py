"""The walls between a submission and the machine that grades it.

    user        a user of its own that owns nothing, without capabilities
    network     no socket can be made; a network namespace with no way out
    files       reads Python, its packages, `provided` and the submission; no test, no solution, no
                home. Writes in its scratch folder. Executes nothing
    scratch     that folder holds at most `limits.SCRATCH` bytes, in memory, and goes with the child
    processes   sees and signals its own only; all of them end with it
    memory      all of a submission's processes together, and how many those are
    debugging   no tracing, no other door into the kernel that a submission has no use for

Which of them stand depends on the system and on who runs the grader: a `Building` tries each once,
in a process that runs nothing of a submission, and tells what is missing and why. A child then gets
exactly those that stood, and does not start without one of them. Limits (`limits`) hold everywhere.

    kernel       Linux's system calls that Python does not have
    building     which walls there are, and which of them stand on this machine
    site         one child, walling itself in; the order in which they go up
    limits       how much of everything
    namespaces, users, landlock, seccomp, scratch, groups     one kind of wall each
"""

from tests.grading.walls.building import WALLS, Building, clean_up_after

__all__ = ["WALLS", "Building", "clean_up_after"]
