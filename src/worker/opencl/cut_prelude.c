/* What a part tells its kernel (see cut_prelude.h). */
#include "src/worker/opencl/cut_prelude.h"

/* The bits, from the lowest on: how many dimensions the range has (2). With one: its groups less one (23), and the
 * part's first group (23). With more: the bits of the first dimension (4) and of the second (4); the groups of each
 * dimension less one (19 in all); and the part's first group in each (19). */
enum { DIMS_BITS = 2, SIZE_BITS = 4, LINE_BITS = 23, BOX_BITS = 19, OFFSET_BITS = 16 };

static unsigned bits_for(uint64_t groups)
{
    unsigned bits = 0;

    while (bits < 63 && groups > UINT64_C(1) << bits)
        bits++;
    return bits;
}

bool dvk_cut_offsets(uint32_t dims, const uint64_t groups[3], const uint64_t at[3], size_t offsets[3])
{
    unsigned bits[3] = {LINE_BITS, 0, 0}, shift = DIMS_BITS, all = LINE_BITS;
    uint64_t told = dims;

    if (dims == 1) {
        if (bits_for(groups[0]) > LINE_BITS)
            return false;
    } else {
        unsigned sum = 0;
        for (int d = 0; d < 3; d++)
            sum += bits[d] = bits_for(groups[d]);
        if (sum > BOX_BITS || bits[0] >= 1u << SIZE_BITS || bits[1] >= 1u << SIZE_BITS)
            return false;
        told |= (uint64_t)bits[0] << DIMS_BITS | (uint64_t)bits[1] << (DIMS_BITS + SIZE_BITS);
        shift = DIMS_BITS + 2 * SIZE_BITS;
        all = BOX_BITS;
    }
    for (int d = 0; d < 3; d++) {
        told |= (groups[d] - 1) << shift | at[d] << (shift + all);
        shift += bits[d];
    }
    for (int d = 0; d < 3; d++)
        offsets[d] = told >> (d * OFFSET_BITS) & ((1u << OFFSET_BITS) - 1);
    return true;
}

/* The reverse, for kernels. All of it is the same for all work-items, so the compiler computes it once. The id of an
 * item is put together from its place in the group, so that the compiler still sees which items are neighbours. */
const char dvk_cut_prelude[] =
    "#if __OPENCL_C_VERSION__ >= 200\n"
    "#define divvy_local_size(d) get_enqueued_local_size(d)\n"
    "#else\n"
    "#define divvy_local_size(d) get_local_size(d)\n"
    "#endif\n"
    "static inline ulong divvy_told(void) {\n"
    "  return (ulong)get_global_offset(0) | (ulong)get_global_offset(1) << 16 | (ulong)get_global_offset(2) << 32; }\n"
    "static inline uint divvy_work_dim(void) { return (uint)divvy_told() & 3; }\n"
    "static inline uint divvy_bits(uint d) {\n"
    "  uint x = (uint)(divvy_told() >> 2) & 15, y = (uint)(divvy_told() >> 6) & 15;\n"
    "  return divvy_work_dim() == 1 ? (d == 0 ? 23 : 0) : d == 0 ? x : d == 1 ? y : d == 2 ? 19 - x - y : 0; }\n"
    "static inline uint divvy_shift(uint d) {\n"
    "  return divvy_work_dim() == 1 ? 2 : 10 + (d > 0 ? divvy_bits(0) : 0) + (d > 1 ? divvy_bits(1) : 0); }\n"
    "static inline size_t divvy_field(uint d, uint more) {\n"
    "  return d > 2 ? 0 : (size_t)(divvy_told() >> (divvy_shift(d) + more)) & (((size_t)1 << divvy_bits(d)) - 1); }\n"
    "static inline size_t divvy_num_groups(uint d) { return divvy_field(d, 0) + 1; }\n"
    "static inline size_t divvy_group_id(uint d) {\n"
    "  return get_group_id(d) + divvy_field(d, divvy_work_dim() == 1 ? 23 : 19); }\n"
    "static inline size_t divvy_global_id(uint d) {\n"
    "  return get_local_id(d) + divvy_group_id(d) * divvy_local_size(d); }\n"
    "static inline size_t divvy_global_size(uint d) { return divvy_num_groups(d) * divvy_local_size(d); }\n"
    "static inline size_t divvy_global_offset(uint d) { return 0; }\n"
    "static inline size_t divvy_global_linear_id(void) {\n"
    "  return (divvy_global_id(2) * divvy_global_size(1) + divvy_global_id(1)) * divvy_global_size(0) +\n"
    "         divvy_global_id(0); }\n"
    "#define get_work_dim divvy_work_dim\n"
    "#define get_global_id divvy_global_id\n"
    "#define get_global_size divvy_global_size\n"
    "#define get_global_offset divvy_global_offset\n"
    "#define get_group_id divvy_group_id\n"
    "#define get_num_groups divvy_num_groups\n"
    "#define get_global_linear_id divvy_global_linear_id\n"
    "#line 1\n";
