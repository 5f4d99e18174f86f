"""What a finished plan is asked, whoever made it: a question a module, each read off the nouns; none asks another."""
