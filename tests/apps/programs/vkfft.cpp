// A two-dimensional VkFFT plan, forward and back, checked on the host. Usage: PROGRAM FILE SIDE
#include <vkFFT.h>

#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <vector>

using Complex = std::complex<float>;

static void require(bool good, const char *what)
{
    if (!good) {
        std::fprintf(stderr, "%s failed\n", what);
        std::exit(1);
    }
}

static cl_device_id first_device(cl_platform_id *platform)
{
    cl_device_id device;
    require(clGetPlatformIDs(1, platform, nullptr) == CL_SUCCESS, "clGetPlatformIDs");
    require(clGetDeviceIDs(*platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr) == CL_SUCCESS,
            "clGetDeviceIDs");
    char name[256] = "";
    require(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof(name), name, nullptr) == CL_SUCCESS,
            "clGetDeviceInfo");
    std::cout << "device: " << name << "\n";
    return device;
}

// One coefficient of the transform from its definition.
static std::complex<double> coefficient(const std::vector<Complex> &in, std::size_t side,
                                        std::size_t u, std::size_t v)
{
    std::complex<double> sum = 0;
    for (std::size_t y = 0; y < side; y++) {
        for (std::size_t x = 0; x < side; x++) {
            const double angle = -2 * M_PI * static_cast<double>(u * x + v * y) /
                                 static_cast<double>(side);
            sum += std::complex<double>(in[y * side + x]) * std::polar(1.0, angle);
        }
    }
    return sum;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s FILE SIDE\n", argv[0]);
        return 2;
    }
    const std::size_t side = std::strtoul(argv[2], nullptr, 10);
    std::vector<Complex> in(side * side), transformed(side * side), back(side * side);
    for (std::size_t i = 0; i < in.size(); i++) {
        in[i] = Complex(std::sin(0.37f * static_cast<float>(i % 101)),
                        std::cos(0.21f * static_cast<float>(i % 53)));
    }

    cl_platform_id platform;
    cl_device_id device = first_device(&platform);
    cl_int status;
    cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &status);
    require(status == CL_SUCCESS, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
    require(status == CL_SUCCESS, "clCreateCommandQueue");
    uint64_t bytes = in.size() * sizeof(Complex);
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, nullptr, &status);
    require(status == CL_SUCCESS, "clCreateBuffer");

    VkFFTConfiguration configuration = {};
    configuration.FFTdim = 2;
    configuration.size[0] = side;
    configuration.size[1] = side;
    configuration.platform = &platform;
    configuration.device = &device;
    configuration.context = &context;
    configuration.buffer = &buffer;
    configuration.bufferSize = &bytes;
    configuration.normalize = 1;
    VkFFTApplication application = {};
    require(initializeVkFFT(&application, configuration) == VKFFT_SUCCESS, "initializeVkFFT");

    VkFFTLaunchParams launch = {};
    launch.commandQueue = &queue;
    launch.buffer = &buffer;
    require(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, bytes, in.data(), 0, nullptr,
                                 nullptr) == CL_SUCCESS, "clEnqueueWriteBuffer");
    require(VkFFTAppend(&application, -1, &launch) == VKFFT_SUCCESS, "forward transform");
    require(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, transformed.data(), 0, nullptr,
                                nullptr) == CL_SUCCESS, "clEnqueueReadBuffer");
    require(VkFFTAppend(&application, 1, &launch) == VKFFT_SUCCESS, "inverse transform");
    require(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, back.data(), 0, nullptr,
                                nullptr) == CL_SUCCESS, "clEnqueueReadBuffer");
    deleteVkFFT(&application);
    clReleaseMemObject(buffer);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);

    bool matches = true;
    for (std::size_t i = 0; i < in.size(); i++) {
        matches = matches && std::abs(in[i] - back[i]) < 1e-3f;
    }
    const double tolerance = 1e-4 * static_cast<double>(in.size());
    for (std::size_t k : {std::size_t(0), std::size_t(3), side / 2 + 1}) {
        const std::complex<double> have(transformed[(k + 1) * side + k]);
        matches = matches && std::abs(coefficient(in, side, k, k + 1) - have) < tolerance;
    }
    std::cout << "matches host: " << (matches ? "yes" : "no") << "\n";

    std::ofstream out(argv[1], std::ios::binary);
    out.write(reinterpret_cast<const char *>(transformed.data()),
              static_cast<std::streamsize>(bytes));
    out.write(reinterpret_cast<const char *>(back.data()), static_cast<std::streamsize>(bytes));
    return out.good() ? 0 : 1;
}
