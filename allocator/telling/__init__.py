"""What has happened and what is planned, as plain text of at most 100 columns."""
