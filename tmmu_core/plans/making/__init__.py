"""From a request to a plan: the engine, the problems it asks the planners, and how their answers become columns."""
