"""Everything a person or a program talks to over HTTP; the Django project. Imported by nobody."""
