"""The autograder: grades a submission with the graded suite: points and reports."""
