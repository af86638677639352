"""`make watch`: the next problem on the screen, its tests run again at every save.

    keys, saves, signals ──▶ app ──▶ session ──▶ page ──▶ screen
                              ║
                          background ══ pipe ══ worker ──▶ runner, zygote, children

session     what is known and what is to run next; no terminal, process or clock in it
plan        which problem comes next
changes     which problems a save touches
hints       what the docstrings of a file advise
page        the session as lines of text, for a window of any size; paint has the brushes
screen      the terminal: whole screen and keys, or plain lines where it can do no more
background  the worker as the app sees it
worker      the process that grades

The worker is a process, not a thread: importing torch (over a second) and running pytest would
hold up the keys, pytest wants the main thread for Ctrl-C, which is also how a run ends that a new
save makes useless, and a grader that dies must not take the terminal with it. It stays alive, so
that a save costs neither its import of torch nor that of the zygote, which waits for it. Measured
on two cores: 1.0 s for a solved problem, 4 s with a new process for every run; and 30 runs later it
is as large as at first.
"""
