"""Find changes that make a model fit: python fit_model.py MODEL BYTES. Install: base."""

import sys

import tmmu

fit = tmmu.fit(sys.argv[1], int(sys.argv[2]))
print(fit.answer, fit.extent_bytes, [move.kind for move in fit.moves])
if fit.answer == "fits":
    fit.save("fitted.tmmu.json")
