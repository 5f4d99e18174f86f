"""A file per question a person has. The pages are scripts that the router runs; ``parts`` is what they share."""
