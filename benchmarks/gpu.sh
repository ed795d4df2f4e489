#!/usr/bin/env bash
# Checks the GPU kernels on one card, then measures them and training; under ten minutes. Results: $OUT (default ./gpu-results).
#
#   benchmarks/gpu.sh              tests.log, measured.log, *.json in $OUT; the exit status is that of the tests
#   benchmarks/gpu.sh --dry-run    the same with tiny shapes in Triton's interpreter, without a card
#
# Needs Lanner and pip install 'lanner[test]' with a CUDA build of torch. PYTHON names the interpreter.
set -uo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
OUT=${OUT:-gpu-results}
export OUT PYTHONUNBUFFERED=1
mkdir -p "$OUT"

timeout 200 "$PYTHON" -m pytest -p no:cacheprovider --durations=5 -k '(gpu or unique) and not what_float32_gives' \
    tests/kernels/test_kernels_{lookup,lookup_formats,update_gpu,update_formats,formats_gpu,hashing_gpu,unique}.py \
    tests/{embedding/test_embedding,train/test_train}_gpu.py 2>&1 | tee "$OUT/tests.log"
passed=${PIPESTATUS[0]}

timeout 230 "$PYTHON" benchmarks/gpu.py --out "$OUT" "$@" 2>&1 | tee "$OUT/measured.log"
measured=${PIPESTATUS[0]}
timeout 160 "$PYTHON" benchmarks/gpu_training.py --out "$OUT" "$@" 2>&1 | tee "$OUT/training.log"
trained=${PIPESTATUS[0]}

exit $((passed ? passed : measured ? measured : trained))
