"""What people read: tables on a terminal, and the report page."""
