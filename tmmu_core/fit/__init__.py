"""Make it fit: moves that lower what is alive, their costs, and the cheapest of them that fit. Only the app asks."""
