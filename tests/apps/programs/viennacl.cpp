// Matrix product and two iterative solvers with ViennaCL, checked on the host.
// Usage: PROGRAM FILE SIZE
#include <viennacl/compressed_matrix.hpp>
#include <viennacl/linalg/bicgstab.hpp>
#include <viennacl/linalg/cg.hpp>
#include <viennacl/linalg/prod.hpp>
#include <viennacl/matrix.hpp>
#include <viennacl/vector.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <vector>

using Row = std::vector<float>;
using Matrix = std::vector<Row>;
using Sparse = std::vector<std::map<unsigned int, float>>;

static Matrix waves(std::size_t size, float step)
{
    Matrix matrix(size, Row(size));
    for (std::size_t i = 0; i < size; i++) {
        for (std::size_t j = 0; j < size; j++) {
            matrix[i][j] = std::sin(step * static_cast<float>(i * size + j % 17));
        }
    }
    return matrix;
}

static bool product_matches(const Matrix &a, const Matrix &b, const Matrix &c)
{
    const std::size_t size = a.size();
    for (std::size_t i = 0; i < size; i += 5) {
        for (std::size_t j = 0; j < size; j += 3) {
            double want = 0;
            for (std::size_t k = 0; k < size; k++) {
                want += static_cast<double>(a[i][k]) * b[k][j];
            }
            if (std::fabs(want - c[i][j]) > 1e-3 * static_cast<double>(size)) {
                return false;
            }
        }
    }
    return true;
}

// The matrix of a chain of springs, made a little firmer so that the solvers converge fast.
static Sparse chain(unsigned int size)
{
    Sparse matrix(size);
    for (unsigned int i = 0; i < size; i++) {
        matrix[i][i] = 2.5f;
        if (i > 0) {
            matrix[i][i - 1] = -1.0f;
        }
        if (i + 1 < size) {
            matrix[i][i + 1] = -1.0f;
        }
    }
    return matrix;
}

static bool solves(const Sparse &matrix, const Row &solution, const Row &right)
{
    for (std::size_t i = 0; i < matrix.size(); i++) {
        double sum = 0;
        for (const auto &[column, value] : matrix[i]) {
            sum += static_cast<double>(value) * solution[column];
        }
        if (!(std::fabs(sum - right[i]) < 1e-3)) {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s FILE SIZE\n", argv[0]);
        return 2;
    }
    const std::size_t size = std::strtoul(argv[2], nullptr, 10);
    std::cout << "device: " << viennacl::ocl::current_device().name() << "\n";

    const Matrix host_a = waves(size, 0.11f), host_b = waves(size, 0.07f);
    Matrix host_c(size, Row(size));
    viennacl::matrix<float> a(size, size), b(size, size), c(size, size);
    viennacl::copy(host_a, a);
    viennacl::copy(host_b, b);
    c = viennacl::linalg::prod(a, b);
    viennacl::copy(c, host_c);

    const unsigned int unknowns = static_cast<unsigned int>(size) * 16;
    const Sparse host_chain = chain(unknowns);
    Row right(unknowns), by_cg(unknowns), by_bicgstab(unknowns);
    for (unsigned int i = 0; i < unknowns; i++) {
        right[i] = std::cos(0.01f * static_cast<float>(i));
    }
    viennacl::compressed_matrix<float> springs(unknowns, unknowns);
    viennacl::copy(host_chain, springs);
    viennacl::vector<float> force(unknowns);
    viennacl::copy(right, force);
    viennacl::vector<float> first =
        viennacl::linalg::solve(springs, force, viennacl::linalg::cg_tag(1e-6, 200));
    viennacl::vector<float> second =
        viennacl::linalg::solve(springs, force, viennacl::linalg::bicgstab_tag(1e-6, 200));
    viennacl::copy(first, by_cg);
    viennacl::copy(second, by_bicgstab);
    viennacl::backend::finish();

    const bool matches = product_matches(host_a, host_b, host_c) &&
                         solves(host_chain, by_cg, right) &&
                         solves(host_chain, by_bicgstab, right);
    std::cout << "matches host: " << (matches ? "yes" : "no") << "\n";

    std::ofstream out(argv[1], std::ios::binary);
    for (const Row &row : host_c) {
        out.write(reinterpret_cast<const char *>(row.data()),
                  static_cast<std::streamsize>(row.size() * sizeof(float)));
    }
    for (const Row *row : {&by_cg, &by_bicgstab}) {
        out.write(reinterpret_cast<const char *>(row->data()),
                  static_cast<std::streamsize>(row->size() * sizeof(float)));
    }
    return out.good() ? 0 : 1;
}
