#!/bin/sh
# Record two commits and gate on the last one: sh store_runs.sh MODEL. Install: base and the extra store.
set -e
export TMMU_STORE=sqlite:///plans.db
tmmu record "$1" --as model@0000aaaa --branch main --at 2026-01-01T00:00:00Z
tmmu record "$1" --as model@0000bbbb --branch main --at 2026-01-02T00:00:00Z
tmmu history model
tmmu gate "$1" --baseline store:model@0000bbbb --max-growth 0
