#!/bin/sh
# The paper's six methods and AutoTrim on one data set with the same settings: train, measure tokens, evaluate, one report. One GPU.
#
#   sh recipes/smollm2-all-methods.sh MODEL DATA.jsonl BENCHMARKS_FOLDER runs/smollm2
#
# MODEL: HuggingFaceTB/SmolLM2-135M or a folder; DATA: rows with problem and solution; BENCHMARKS_FOLDER: gsm8k.jsonl and
# math500.jsonl (`-b gsm8k -b math500` takes them from the hub). Rerun the command to resume.
set -eu
model=$1 data=$2 benchmarks=$3 out=$4
measure() { # folder of the run, model
    trimsft tokens "$2" --data "$data" --sample 250 --seed 0 --max-length 1024 --out "$1/tokens.parquet"
    trimsft eval "$2" --out "$1" -b "$benchmarks/gsm8k.jsonl" -b "$benchmarks/math500.jsonl" \
        --max-tokens 640 --dtype bfloat16
}

mkdir -p "$out/base"
measure "$out/base" "$model"
for method in sft fsft dft trim trim-e trim-h auto-trim; do
    trimsft train --config recipes/smollm2-gsm8k.yaml --model "$model" --data "$data" \
        --max_length 1024 --train_sampling_strategy group_by_length --objective "$method" --out "$out/$method"
    measure "$out/$method" "$out/$method"
done
trimsft report Base="$out/base" SFT="$out/sft" FSFT="$out/fsft" DFT="$out/dft" TrimSFT="$out/trim" \
    TrimSFT-E="$out/trim-e" TrimSFT-H="$out/trim-h" AutoTrim="$out/auto-trim" --out "$out/report" --title "SmolLM2-135M, one epoch"
