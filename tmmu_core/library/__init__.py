"""What ``import tmmu_core as tmmu`` offers: a few verbs, and values that can be asked. ``docs/library.md`` shows them."""
