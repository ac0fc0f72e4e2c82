// Sort, reduce and scan with Boost.Compute, checked against the host. Usage: PROGRAM FILE COUNT
#include <boost/compute.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <numeric>
#include <vector>

namespace compute = boost::compute;

static std::vector<int> pseudo_random(std::size_t count)
{
    std::vector<int> values(count);
    std::uint32_t state = 12345;
    for (auto &value : values) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<int>(state >> 16) - 20000;
    }
    return values;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s FILE COUNT\n", argv[0]);
        return 2;
    }
    const std::size_t count = std::strtoul(argv[2], nullptr, 10);

    compute::device device = compute::system::default_device();
    compute::context context(device);
    compute::command_queue queue(context, device);
    std::cout << "device: " << device.name() << "\n";

    const std::vector<int> host = pseudo_random(count);
    compute::vector<int> values(host.begin(), host.end(), queue);

    int sum = 0;
    compute::reduce(values.begin(), values.end(), &sum, compute::plus<int>(), queue);

    compute::vector<int> scanned(count, context);
    compute::inclusive_scan(values.begin(), values.end(), scanned.begin(), queue);
    std::vector<int> host_scanned(count);
    compute::copy(scanned.begin(), scanned.end(), host_scanned.begin(), queue);

    compute::sort(values.begin(), values.end(), queue);
    std::vector<int> sorted(count);
    compute::copy(values.begin(), values.end(), sorted.begin(), queue);

    // A small sort takes a different way than a large one in this library.
    compute::vector<int> few(host.begin(), host.begin() + 31, queue);
    compute::sort(few.begin(), few.end(), compute::greater<int>(), queue);
    std::vector<int> few_sorted(31);
    compute::copy(few.begin(), few.end(), few_sorted.begin(), queue);
    queue.finish();

    std::vector<int> want_sorted = host;
    std::sort(want_sorted.begin(), want_sorted.end());
    std::vector<int> want_scanned(count);
    std::partial_sum(host.begin(), host.end(), want_scanned.begin());
    std::vector<int> want_few(host.begin(), host.begin() + 31);
    std::sort(want_few.begin(), want_few.end(), std::greater<int>());

    const bool matches = sum == std::accumulate(host.begin(), host.end(), 0) &&
                         host_scanned == want_scanned && sorted == want_sorted &&
                         few_sorted == want_few;
    std::cout << "matches host: " << (matches ? "yes" : "no") << "\n";

    std::ofstream out(argv[1], std::ios::binary);
    for (std::size_t i = 0; i < count; i += 7) {
        const float numbers[2] = {static_cast<float>(sorted[i]),
                                  static_cast<float>(host_scanned[i] % 65536)};
        out.write(reinterpret_cast<const char *>(numbers), sizeof(numbers));
    }
    return out.good() ? 0 : 1;
}
