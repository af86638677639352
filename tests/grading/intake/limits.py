"""How much a submission may be. What a student writes is far below every number here."""

from __future__ import annotations

MB = 1024 * 1024

LARGEST_ARCHIVE = 50 * MB  # room for the whole bundle with weights; it is read into memory
MOST_UNPACKED = 64 * MB  # of all streams together: half a second for gzip, one and a half for xz
BZIP2_EFFORT = 2  # a byte out of bzip2 counts twice: noise comes out at 8 MB a second
MOST_ENTRIES = 10_000  # of a folder or an archive, its .git included
MOST_IN_FOLDER = 1_000  # directly, on disk: a larger folder holds data, and is not looked into
LARGEST_DIRECTORY = 2 * MB  # of a zip's table of entries: 200 bytes for each of MOST_ENTRIES
LARGEST_HEADER = 1 * MB  # of an entry in a tar; long names and attributes are in there
MOST_STREAMS = 4096  # gzip, bzip2, xz streams one after the other; parallel packers write some
LARGEST_WINDOW = 80 * MB  # that an xz stream may ask for; `xz -9` asks for 65 MB

LARGEST_FILE = 1 * MB  # of source text: 25,000 lines
LARGEST_ANSWERS = 64 * 1024  # of a file of answers; one that is filled in has 5,000 bytes
LARGEST_TREE = 8 * MB  # all files taken
MOST_FILES = 500  # taken

LONGEST_PATH = 1000  # characters of a path inside the submission; systems allow 4096
LONGEST_NAME = 100  # bytes of one name of a file taken; file systems allow 255
DEEPEST = 20  # folders inside each other

MOST_NOTES = 30  # lines a person still reads
LONGEST_NOTE = 200  # characters
