"""What `make docs` adds to MkDocs: pages made from the code, and links that stay inside the site."""
