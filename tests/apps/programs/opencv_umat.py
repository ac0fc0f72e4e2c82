#!/usr/bin/python3
"""OpenCV's transparent OpenCL path (UMat), checked against its own CPU path (ndarray).

Usage: opencv_umat.py RESULT.json WIDTH
"""

import hashlib
import json
import sys

import cv2
import numpy


def picture(width):
    height = width * 3 // 4
    y, x = numpy.mgrid[0:height, 0:width]
    red = (x * 255 // width).astype(numpy.uint8)
    green = (y * 255 // height).astype(numpy.uint8)
    blue = (((x // 16) + (y // 16)) % 2 * 200).astype(numpy.uint8)
    return numpy.dstack([blue, green, red])


def steps(image):
    """The same chain on whatever kind of array it is given; every stage is kept."""
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    blurred = cv2.GaussianBlur(grey, (7, 7), 1.5)
    half = cv2.resize(blurred, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_LINEAR)
    edges = cv2.Sobel(blurred, cv2.CV_16S, 1, 0, ksize=3)
    opened = cv2.morphologyEx(grey, cv2.MORPH_OPEN, numpy.ones((5, 5), numpy.uint8))
    _, mask = cv2.threshold(opened, 90, 255, cv2.THRESH_BINARY)
    mixed = cv2.addWeighted(grey, 0.25, blurred, 0.75, 3.0)
    return [grey, blurred, half, edges, opened, mask, mixed]


def main(result_path, width):
    image = picture(width)
    on_host = steps(image)
    cv2.ocl.setUseOpenCL(True)
    assert cv2.ocl.useOpenCL(), "OpenCV found no OpenCL device"
    device = cv2.ocl.Device.getDefault()
    on_device = [stage.get() for stage in steps(cv2.UMat(image))]
    cv2.ocl.finish()

    # The two paths may round to different neighbours; the steps that follow can add one more.
    differences = [int(numpy.abs(a.astype(int) - b.astype(int)).max())
                   for a, b in zip(on_host, on_device)]
    allowed = [1, 2, 2, 8, 1, 255, 2]
    with open(result_path, "w") as result:
        json.dump({
            "device": device.name(),
            "matches host": all(d <= limit for d, limit in zip(differences, allowed)),
            "differences": differences,
            "stages": [hashlib.sha256(stage.tobytes()).hexdigest() for stage in on_device],
        }, result)


main(sys.argv[1], int(sys.argv[2]))
