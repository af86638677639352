"""Kernels in official grading: a launch leaves the student's process as data, and runs elsewhere.

    student's process            grader         lab process
    kernel[grid](…) ─▶ describe ─▶ callback ─▶ grammar ─▶ rebuild ─▶ lab ─▶ outputs, counts

So a submission has no hand in what is counted. What may arrive there is Triton's own language and
nothing else of Python: `grammar` reads the syntax tree before anything runs. What a launch is as
machine code is asked for afterwards: the lab process translates it, which needs no other program,
and the grader has the result assembled.
"""
