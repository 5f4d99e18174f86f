"""What ``import tmmu_core as tmmu`` offers: verbs, and values that can be asked. ``docs/library.md`` shows them."""
