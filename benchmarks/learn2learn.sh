#!/usr/bin/env bash
# Installs learn2learn 0.2.0 into the active virtual environment, for the backend that the others are compared with.
# It is not in the dependencies: its released sources have stale generated C, so that they need Cython to build; one of
# its dependencies, qpth, pins a numpy that pandas 3 does not work with; and it imports gym, torchvision and cvxpy.
set -euo pipefail
pip install --quiet cython 'setuptools<80' wheel gym torchvision cvxpy
pip install --quiet --no-deps qpth
pip install --quiet --no-deps --no-build-isolation --global-option=build_ext learn2learn==0.2.0
python -c 'from learn2learn.algorithms import MAML'
