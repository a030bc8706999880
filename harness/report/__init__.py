"""From results to pages: read the evidence, draw charts, lay out tables, and write the files of the site."""
