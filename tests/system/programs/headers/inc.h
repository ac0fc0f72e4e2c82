/* What faults.c includes in a program of its own. */
kernel void inc(global uint *data)
{
}
