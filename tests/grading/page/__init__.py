"""What report.html is made of: the views of a report, the template, and its style."""
