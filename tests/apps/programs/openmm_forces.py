#!/usr/bin/python3
"""A box of charged, bonded particles in OpenMM: forces on OpenCL against the reference platform,
then some steps of dynamics.

Usage: openmm_forces.py RESULT.json PARTICLES_PER_SIDE
"""

import json
import sys

import numpy
import openmm
from openmm import unit

SPACING_NM = 0.38
STEPS = 20


def build_system(side):
    """Diatomic molecules of opposite charges on a grid, slightly out of place."""
    system = openmm.System()
    nonbonded = openmm.NonbondedForce()
    nonbonded.setNonbondedMethod(openmm.NonbondedForce.PME)
    nonbonded.setCutoffDistance(min(1.0, 0.45 * side * SPACING_NM) * unit.nanometer)
    bonds = openmm.HarmonicBondForce()
    box = side * SPACING_NM
    system.setDefaultPeriodicBoxVectors((box, 0, 0), (0, box, 0), (0, 0, box))
    positions = []
    for index in range(side ** 3):
        x, y, z = index % side, index // side % side, index // side ** 2
        system.addParticle(20.0)
        nonbonded.addParticle(0.3 if index % 2 == 0 else -0.3, 0.3, 0.5)
        wiggle = 0.02 * numpy.sin(numpy.array([index, 2 * index, 3 * index]))
        positions.append(SPACING_NM * numpy.array([x, y, z]) + wiggle)
        if index % 2 == 1:
            bonds.addBond(index - 1, index, SPACING_NM, 5000.0)
            nonbonded.addException(index - 1, index, 0.0, 0.3, 0.0)
    system.addForce(nonbonded)
    system.addForce(bonds)
    return system, numpy.array(positions)


def context_on(platform_name, system, positions, properties):
    platform = openmm.Platform.getPlatformByName(platform_name)
    integrator = openmm.VerletIntegrator(0.001 * unit.picoseconds)
    context = openmm.Context(system, integrator, platform, properties)
    context.setPositions(positions)
    return context, integrator


def forces_of(context):
    state = context.getState(getForces=True, getEnergy=True)
    forces = state.getForces(asNumpy=True)
    return (forces.value_in_unit(unit.kilojoule_per_mole / unit.nanometer),
            state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole))


def main(result_path, side):
    system, positions = build_system(side)
    reference, keep_integrator = context_on("Reference", system, positions, {})
    want_forces, want_energy = forces_of(reference)

    context, integrator = context_on("OpenCL", system, positions, {"Precision": "single"})
    forces, energy = forces_of(context)
    integrator.step(STEPS)
    moved = context.getState(getPositions=True, getEnergy=True)
    after = moved.getPositions(asNumpy=True).value_in_unit(unit.nanometer)
    energy_after = moved.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)

    scale = numpy.abs(want_forces).max()
    worst = float(numpy.abs(forces - want_forces).max() / scale)
    matches = (worst < 1e-3 and abs(energy - want_energy) < 1e-3 * abs(want_energy)
               and not numpy.array_equal(after, positions))
    with open(result_path, "w") as result:
        json.dump({
            "device": context.getPlatform().getPropertyValue(context, "DeviceName"),
            "matches host": bool(matches),
            "energies": [energy, energy_after],
            "forces": forces.flatten().tolist(),
            "positions": after.flatten().tolist(),
        }, result)


main(sys.argv[1], int(sys.argv[2]))
