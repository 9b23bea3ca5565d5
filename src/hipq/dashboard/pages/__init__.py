"""The pages, one file each: each reads what it shows, and fills in its template."""
