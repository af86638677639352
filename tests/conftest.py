"""Every test here, graded or staff, runs with the grader's plugin: markers, fixtures, --submission."""

pytest_plugins = ("tests.grading.plugin",)
