"""Every test here, graded or staff, runs with the grader's plugin."""

pytest_plugins = ("tests.grading.plugin",)
