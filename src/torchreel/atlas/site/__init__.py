"""What is known -> the pages of the site. Data in, text out; only `write` and `links` touch files."""
