/* Included by a program in faults.c. */
kernel void inc(global uint *data)
{
}
