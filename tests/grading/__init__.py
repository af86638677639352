"""The autograder: finds a submission, runs the graded suite on it, turns outcomes into points and a report."""
