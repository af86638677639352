"""What a student hands in, an archive, a folder or a file, becomes a clean tree of their modules.

    read     folder, archives (zips, tars, unpack): whatever it is, entries with names
    choose   roots, targets, doubles: which entry becomes which file of the tree; on names alone
    write    only those files, as plain files with names that we made

Nothing is unpacked to where an archive says, and nothing is taken but <unit>/**/*.py and the files
of answers that the course names (review.toml), which are read and never run.
"""

from __future__ import annotations

from tests.grading.intake.stage import Staged, stage

__all__ = ["Staged", "stage"]
