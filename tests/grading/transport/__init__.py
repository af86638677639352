"""The switch across a process boundary: tests and verdict stay here, a child runs the submission.

    test ──▶ proxy ──▶ wire ══ socket ══ wire ──▶ agent ──▶ the student's code
                                                    ▲
    forkserver ═══════════════ zygote ── fork ──────┘   (a child serves tests until one goes wrong)

wire        values as JSON and raw tensor bytes; no pickle
agent       runs in the child: carries out calls, keeps the objects that handles name
zygote      a process that has imported torch and `assignment.provided` and forks the children
forkserver  the grader's end of the zygote
proxy       what a test holds: names, handles, and the session that speaks to the child
finder      lets a test import those names
"""
