#!/usr/bin/python3
"""PyOpenCL's own algorithms (elementwise, reduction, scan), checked against numpy.

Usage: pyopencl_algorithms.py RESULT.json COUNT
"""

import hashlib
import json
import sys

import numpy
import pyopencl
import pyopencl.array
import pyopencl.clmath
from pyopencl.elementwise import ElementwiseKernel
from pyopencl.reduction import ReductionKernel
from pyopencl.scan import GenericScanKernel


def main(result_path, count):
    platform = pyopencl.get_platforms()[0]
    context = pyopencl.Context(platform.get_devices()[:1])
    queue = pyopencl.CommandQueue(context)

    host_a = (numpy.arange(count, dtype=numpy.float32) % 1013) / 7
    host_b = (numpy.arange(count, dtype=numpy.float32) % 751) / 3
    host_i = (numpy.arange(count, dtype=numpy.int32) * 7919) % 1000 - 300
    a = pyopencl.array.to_device(queue, host_a)
    b = pyopencl.array.to_device(queue, host_b)
    i = pyopencl.array.to_device(queue, host_i)

    combine = ElementwiseKernel(
        context, "float p, float *x, float q, float *y, float *out",
        "out[i] = p * x[i] + q * y[i]", "combine")
    out = pyopencl.array.empty_like(a)
    combine(numpy.float32(5), a, numpy.float32(-2), b, out)

    dot = ReductionKernel(
        context, numpy.int32, neutral="0", reduce_expr="a + b", map_expr="x[i] % 11",
        arguments="__global int *x")(i).get().item()
    largest = pyopencl.array.max(b).get().item()

    scan = GenericScanKernel(
        context, numpy.int32, arguments="__global int *x, __global int *result",
        input_expr="x[i]", scan_expr="a + b", neutral="0", output_statement="result[i] = item;")
    scanned = pyopencl.array.empty_like(i)
    scan(i, scanned)

    roots = pyopencl.clmath.sqrt(a)
    first_half = out[: count // 2].get()

    got_combine, got_scan, got_roots = out.get(), scanned.get(), roots.get()
    want_combine = numpy.float32(5) * host_a + numpy.float32(-2) * host_b
    c_remainder = numpy.sign(host_i) * (numpy.abs(host_i) % 11)
    matches = (
        numpy.allclose(got_combine, want_combine, rtol=1e-5, atol=1e-3)
        and dot == int(c_remainder.sum())
        and largest == float(host_b.max())
        and numpy.array_equal(got_scan, numpy.cumsum(host_i, dtype=numpy.int32))
        and numpy.allclose(got_roots, numpy.sqrt(host_a), rtol=1e-5)
        and numpy.array_equal(first_half, got_combine[: count // 2]))

    with open(result_path, "w") as result:
        json.dump({
            "device": context.devices[0].name,
            "matches host": bool(matches),
            "reduction": dot,
            "arrays": [hashlib.sha256(array.tobytes()).hexdigest()
                       for array in (got_combine, got_scan, got_roots)],
        }, result)


main(sys.argv[1], int(sys.argv[2]))
