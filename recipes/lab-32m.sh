#!/bin/sh
# The lab with a base model of 32 million parameters on one GPU: pre-train it, then seven methods (five in the wide band) under four conditions.
#
#   sh recipes/lab-32m.sh runs/lab-32m
#
# On one H200 that also did other work: 9 minutes of pre-training, then 75 to 100 seconds for each condition and seed.
# Rerun the command to resume; a base that is there is not trained again. --size large makes one of 128 million.
set -eu
out=${1:-runs/lab-32m}
mkdir -p "$out"

if [ ! -f "$out/base/model.safetensors" ]; then
    python -m tools.lab_base.pretrain --out "$out/base" --device cuda --size medium --examples 1000000 --steps 4000 \
        --processes 8
fi

lab() {
    python benchmarks/lab.py --out "$out" --base "$out/base" --device cuda --workers 7 --rows 4800 --problems 100 \
        --learning-rate 2e-4 "$@"
}
lab --conditions default --seeds 0 1 2 --results "$out/lab_h200.json"
lab --conditions clean "all unfamiliar" "wide band (4, 3)" --seeds 0 --results "$out/lab_h200_conditions.json"
